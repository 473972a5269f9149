"""Any torch module, read as a graph of operations by torch.export on the meta device; torch is imported when it is asked for."""
