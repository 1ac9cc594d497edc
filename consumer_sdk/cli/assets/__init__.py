"""``consumer-sdk assets``: files for other programs: editors and shells."""
