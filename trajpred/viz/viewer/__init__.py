"""Recordings for Foxglove and Autoware's tools: MCAP files of ROS 2 messages."""

from trajpred.integrations.mcap import DriveFile, save_mcap

__all__ = ["DriveFile", "save_mcap"]
