"""Speed and memory of every stage, measured in one run and reported as ratios where there is a rival."""
