"""Works with a MAAS through python-libmaas, as its own documentation shows. Arguments: URL and API key."""

import sys

from maas.client import connect
from maas.client.enum import NodeStatus, PowerState


def expect(what, condition):
    if not condition:
        sys.exit(f"python-libmaas: {what}")
    print(f"python-libmaas: {what}: yes")


def main(url, key):
    client = connect(url, apikey=key)
    expect("the server is a MAAS 3", client.version.get().version.startswith("3."))
    expect("the key belongs to an administrator", client.users.whoami().is_admin)

    machines = client.machines.list()
    expect("three machines are listed", len(machines) == 3)
    expect("they have names", {machine.hostname for machine in machines} == {"bm1", "bm2", "bm3"})
    expect("zones are listed", {zone.name for zone in client.zones.list()} == {"default", "az1"})
    expect("pools are listed", {pool.name for pool in client.resource_pools.list()} == {"default", "pool-a"})
    subnets = client.subnets.list()
    expect("subnets are listed with their VLANs", any(s.cidr == "10.20.0.0/24" and s.vlan.id > 0 for s in subnets))

    machine = client.machines.allocate(hostname="bm2", agent_name="libmaas")
    expect("the machine asked for was allocated", machine.hostname == "bm2" and machine.status == NodeStatus.ALLOCATED)
    machine.deploy(distro_series="jammy", wait=True, wait_interval=1)
    machine.refresh()
    expect("deploying with wait ends in Deployed", machine.status == NodeStatus.DEPLOYED)
    expect("a deployed machine has an address", len(machine.ip_addresses) >= 1)
    expect("its interfaces can be read", machine.interfaces[0].mac_address is not None)
    expect("its BMC says that it is on", machine.query_power_state() == PowerState.ON)

    events = list(client.events.query(hostnames=["bm2"], level="DEBUG", limit=50))
    expect("events tell of the deployment", any("Deployed" in str(event.description_short) for event in events))
    expect("events carry the machine", all(event.hostname == "bm2" for event in events))

    machine.release(comment="done", wait=True, wait_interval=1)
    machine.refresh()
    expect("releasing with wait ends in Ready", machine.status == NodeStatus.READY)
    expect("a released machine has no owner", client.machines.get(system_id=machine.system_id).owner is None)
    print("python-libmaas: done")


if __name__ == "__main__":
    main(*sys.argv[1:])
