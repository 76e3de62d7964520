#!/bin/bash
# Makes a machine image of a running instance's disk ready for workers: everything that the user
# data would otherwise install at each boot. Run as root on Amazon Linux 2023 (with GPUs: AWS's
# "Deep Learning Base" image of it), then make an image of the instance and terminate it:
#
#   prepare.sh eva-worker-VERSION-ARCH-DIGEST.tar [IMAGE...]     container images to have at hand
#   aws ec2 create-image --instance-id i-... --name eva-worker
#
# In the master's settings: ec2.images.ARCH: ami-..., and no ec2.bundles.
set -euo pipefail
bundle=$1
shift

dnf -y -q install python3.11 docker amazon-ecr-credential-helper
mkdir -p /root/.docker
echo '{"credsStore": "ecr-login"}' >/root/.docker/config.json
mkdir -p /opt/eva
wheels=$(mktemp -d)
tar -xf "$bundle" -C "$wheels" --no-same-owner
python3.11 -m venv --without-pip /opt/eva
pip=("$wheels"/pip-*.whl)
/opt/eva/bin/python "${pip[0]}/pip" install --quiet --no-index --no-deps "$wheels"/*.whl
# Compiled once here rather than at each first start.
/opt/eva/bin/python -m compileall -q /opt/eva/lib
install -m 644 "$wheels/eva-worker.service" /etc/systemd/system/
rm -rf "$wheels"

# Not started by itself: the user data says first what the instance is to be.
systemctl daemon-reload
systemctl enable --now docker
if command -v nvidia-ctk >/dev/null; then
  nvidia-ctk runtime configure --runtime=docker
  systemctl restart docker
fi
for image in "$@"; do docker pull --quiet "$image"; done

# An image must have no memory of the instance it was made of.
rm -rf /etc/eva /var/lib/eva /var/log/eva-boot.log
cloud-init clean --logs
