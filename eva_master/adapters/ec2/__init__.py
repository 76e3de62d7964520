"""EC2 behind the `Cloud` port: launches, terminations, and a watch over what exists."""

from eva_master.adapters.ec2.cloud import Ec2Cloud
from eva_master.adapters.ec2.settings import Ec2Settings

__all__ = ["Ec2Cloud", "Ec2Settings"]
