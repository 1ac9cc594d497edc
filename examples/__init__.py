"""Programs that show the SDK at work: start with ``service.py`` and ``pull.py``; ``docs/recipes.md`` lists them."""
