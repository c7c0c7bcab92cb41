"""An experiment's runs compared: from the index to results and what casts doubt on them."""
