# Above: what this instance is to be, as shell variables. From here on it is the same for all.
# Each stage's time goes to the master with the first registration.
set -Eeuo pipefail
umask 077
log=/var/log/eva-boot.log
exec >>"$log" 2>&1
mkdir -p /etc/eva /var/lib/eva /opt/eva
stages=/var/lib/eva/boot

up_ms() { local up; read -r up _ </proc/uptime; echo "${up/./}0"; }
stage() { local now; now=$(up_ms); echo "$1 $((10#$now - 10#$last))" >>"$stages"; last=$now; }
packages() {
  if command -v dnf >/dev/null; then dnf -y -q install "$@"; return; fi
  apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -y -q install "$@"
}
need() { command -v "$1" >/dev/null || { shift; packages "$@"; }; }
persistently() {
  local try
  for try in 1 2 3 4 5; do "$@" && return; sleep $((try * 2)); done
  return 1
}
s3() { aws ${s3_endpoint:+--endpoint-url "$s3_endpoint"} --region "$region" s3 "$@"; }

# An instance that does not become a worker must not go on costing money: whoever fails says
# where, leaves its log in the bucket, and is gone; so is who hangs.
shutdown -P "+$boot_limit_min" || true
failed() {
  trap - ERR
  set +e
  echo "eva: boot failed in line $1 after the stage '$(tail -n 1 "$stages")': $2"
  cat "$log" >/dev/console
  [ -z "$boot_logs" ] || s3 cp --only-show-errors "$log" "$boot_logs/$instance.log"
  shutdown -P now
  exit 1
}
trap 'failed "$LINENO" "$BASH_COMMAND"' ERR

: >"$stages"
last=0
stage machine

# The disks that come with the instance are faster than its volume, and cost nothing more.
# Each has several names, which differ from image to image.
mapfile -t disks < <(
  find /dev/disk/by-id -name 'nvme-Amazon_EC2_NVMe_Instance_Storage_*' ! -name '*-part*' \
    -exec readlink -f {} + 2>/dev/null | sort -u || true
)
# Some images put them to use themselves: those are left as they are.
unused=()
for disk in "${disks[@]}"; do
  [ "$(lsblk -nro NAME,MOUNTPOINT "$disk" | wc -w)" -gt 1 ] || unused+=("$disk")
done
fast=
if mountpoint -q /var/lib/eva; then
  :
elif [ ${#unused[@]} -gt 0 ]; then
  device=${unused[0]} fast=/mnt
  if [ ${#unused[@]} -gt 1 ]; then
    need mdadm mdadm
    device=/dev/md0
    mdadm --create "$device" --run --level=0 --raid-devices=${#unused[@]} "${unused[@]}"
  fi
  mkfs.ext4 -q -E lazy_itable_init=1,nodiscard "$device"
  mount -o noatime "$device" "$fast"
elif [ ${#disks[@]} -gt 0 ]; then
  fast=$(lsblk -nro MOUNTPOINT "${disks[@]}" | grep -m 1 '^/' || true)
fi
kib() { df --output=size -k "$1" | tail -n 1; }
# The volume has the disk that tasks state. The instance's own disks may be smaller.
if [ -n "$fast" ] && [ "$disk_mib" -gt 0 ] && [ "$(kib "$fast")" -lt "$(kib /)" ]; then
  fast=
fi
if [ -n "$fast" ]; then
  mkdir -p "$fast/eva" "$fast/docker" /var/lib/docker
  cp -a "$stages" "$fast/eva/"
  mount --bind "$fast/eva" /var/lib/eva
  # Containers' images that the machine's image came with must be found where they are.
  if command -v dockerd >/dev/null; then systemctl start docker || true; fi
  if [ -z "$(docker image ls -q 2>/dev/null || true)" ]; then
    systemctl stop docker.socket docker || true
    mount --bind "$fast/docker" /var/lib/docker
  fi
fi
eval "$mount_command"
stage storage

command -v dockerd >/dev/null || need docker docker || packages docker.io
if [ "$gpus" -gt 0 ]; then
  nvidia-smi -L # The driver comes with the image.
  if ! command -v nvidia-ctk >/dev/null; then
    curl -fsSL https://nvidia.github.io/libnvidia-container/stable/rpm/nvidia-container-toolkit.repo \
      -o /etc/yum.repos.d/nvidia-container-toolkit.repo
    packages nvidia-container-toolkit
  fi
  nvidia-ctk runtime configure --runtime=docker
  systemctl restart docker
fi
# When memory runs out, a task is to end, and not the engine that runs all of them.
mkdir -p /etc/systemd/system/docker.service.d
printf '[Service]\nOOMScoreAdjust=-900\n' >/etc/systemd/system/docker.service.d/eva.conf
systemctl daemon-reload
systemctl enable --now docker
for pid in $(pidof dockerd containerd || true); do
  { echo -900 >"/proc/$pid/oom_score_adj"; } 2>/dev/null || true
done
# Images in ECR are fetched with the instance's role. A machine without that package still
# fetches all others.
if need docker-credential-ecr-login amazon-ecr-credential-helper; then
  mkdir -p /root/.docker
  [ -e /root/.docker/config.json ] || echo '{"credsStore": "ecr-login"}' >/root/.docker/config.json
fi
stage containers

if [ -n "$bundle" ]; then
  need aws awscli
  need "$python" "$python"
  persistently s3 cp --only-show-errors "$bundle" /opt/eva/bundle.tar
  echo "$bundle_sha256  /opt/eva/bundle.tar" | sha256sum --check --quiet
  stage download
  mkdir -p /opt/eva/wheels
  tar -xf /opt/eva/bundle.tar -C /opt/eva/wheels --no-same-owner
  "$python" -m venv --without-pip /opt/eva
  # A wheel is a zip file, from which Python can run pip.
  pip=(/opt/eva/wheels/pip-*.whl)
  /opt/eva/bin/python "${pip[0]}/pip" install --quiet --no-index --no-deps --no-compile \
    --disable-pip-version-check /opt/eva/wheels/*.whl
  install -m 644 /opt/eva/wheels/eva-worker.service /etc/systemd/system/
  rm -rf /opt/eva/bundle.tar /opt/eva/wheels
  systemctl daemon-reload
fi
stage agent

printf '%s\n' "$authorities" >/etc/eva/ca.pem
printf '%s\n' "$worker_env" >/etc/eva/worker.env
systemctl enable --now eva-worker
# From its first contact with the master on, the worker sees to it that the instance ends when it
# is of no use.
until [ -e /var/lib/eva/worker/contact ]; do sleep 1; done
shutdown -c || true
