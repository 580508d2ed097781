"""Recordings for Foxglove and Autoware's tools: MCAP files of ROS 2 messages."""

from trajpred.viz.viewer.drive_file import DriveFile, save_mcap

__all__ = ["DriveFile", "save_mcap"]
