"""ROS 2 bags and MCAP files: topics, and messages as bytes."""
