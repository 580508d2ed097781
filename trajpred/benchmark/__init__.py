"""Speed and memory of every stage, beside other implementations in the same run."""
