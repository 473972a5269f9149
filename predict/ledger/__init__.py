"""The ledger of a step: five books that add up to the estimate, MFU by convention, the waterfall, and the cost of a whole training."""
