"""Everything around a consumer fails: the network, the store's servers, the machine."""
