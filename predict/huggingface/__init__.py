"""A Hugging Face `config.json` read as a ModelSpec: the families of architectures, their keys, and every fault of them."""
