// Works with a MAAS through Canonical's Go client. Arguments: URL and API key.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/canonical/gomaasclient/client"
	"github.com/canonical/gomaasclient/entity"
)

// Nothing that is waited for here takes a simulator longer than a few seconds.
const patience = 60 * time.Second

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gomaasclient URL API-KEY")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "gomaasclient:", err)
		os.Exit(1)
	}
	fmt.Println("gomaasclient: done")
}

func run(url, key string) error {
	maas, err := client.GetClient(url, key, "2.0")
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	for _, part := range []struct {
		name string
		work func(*client.Client) error
	}{
		{"machines", machines},
		{"VM hosts", vmHosts},
		{"DNS resources", dnsResources},
		{"subnets", subnets},
		{"tags", tags},
	} {
		if err := part.work(maas); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Printf("gomaasclient: %s: work\n", part.name)
	}
	return nil
}

func expect(condition bool, format string, values ...any) error {
	if condition {
		return nil
	}
	return fmt.Errorf(format, values...)
}

func waitFor(maas *client.Client, systemID, status string) (*entity.Machine, error) {
	var last string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		machine, err := maas.Machine.Get(systemID)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", systemID, err)
		}
		if last = machine.StatusName; last == status {
			return machine, nil
		}
	}
	return nil, fmt.Errorf("machine %s is %s and did not become %s", systemID, last, status)
}

func machines(maas *client.Client) error {
	all, err := maas.Machines.Get(&entity.MachinesParams{})
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	named, err := maas.Machines.Get(&entity.MachinesParams{Hostname: []string{"bm1"}})
	if err != nil {
		return fmt.Errorf("listing by name: %w", err)
	}
	if err := expect(len(all) == 3 && len(named) == 1, "found %d machines, %d called bm1", len(all), len(named)); err != nil {
		return err
	}
	machine, err := maas.Machines.Allocate(&entity.MachineAllocateParams{SystemID: named[0].SystemID, AgentName: "gomaasclient"})
	if err != nil {
		return fmt.Errorf("allocating: %w", err)
	}
	if err := expect(machine.StatusName == "Allocated", "allocated machine is %s", machine.StatusName); err != nil {
		return err
	}
	if _, err := maas.Machine.Deploy(machine.SystemID, &entity.MachineDeployParams{DistroSeries: "jammy"}); err != nil {
		return fmt.Errorf("deploying: %w", err)
	}
	if machine, err = waitFor(maas, machine.SystemID, "Deployed"); err != nil {
		return err
	}
	power, err := maas.Machine.GetPowerState(machine.SystemID)
	if err != nil {
		return fmt.Errorf("asking for the power state: %w", err)
	}
	if err := expect(power.State == "on" && len(machine.IPAddresses) > 0, "deployed, power %s, addresses %v", power.State, machine.IPAddresses); err != nil {
		return err
	}
	if _, err := maas.Machine.SetWorkloadAnnotations(machine.SystemID, map[string]string{"cluster": "c1"}); err != nil {
		return fmt.Errorf("annotating: %w", err)
	}
	if _, err := maas.Machine.Release(machine.SystemID, &entity.MachineReleaseParams{Comment: "done"}); err != nil {
		return fmt.Errorf("releasing: %w", err)
	}
	machine, err = waitFor(maas, machine.SystemID, "Ready")
	if err != nil {
		return err
	}
	return expect(machine.Owner == "" && len(machine.WorkloadAnnotations) == 0, "a released machine belongs to %q", machine.Owner)
}

func vmHosts(maas *client.Client) error {
	host, err := maas.VMHosts.Create(&entity.VMHostParams{
		Type: "lxd", PowerAddress: "10.20.0.9:8443", Project: "maas", Name: "host-a", Password: "secret", Zone: "az1",
	})
	if err != nil {
		return fmt.Errorf("creating: %w", err)
	}
	for end := time.Now().Add(patience); host.Total.Cores == 0; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("the totals of the VM host are never filled")
		}
		if host, err = maas.VMHost.Get(host.ID); err != nil {
			return fmt.Errorf("reading: %w", err)
		}
	}
	listed, err := maas.VMHosts.Get()
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	if err := expect(len(listed) == 1 && listed[0].Name == "host-a", "listed %v", listed); err != nil {
		return err
	}
	vm, err := maas.VMHost.Compose(host.ID, &entity.VMHostMachineParams{Cores: 1, Memory: 2048, Storage: "root:8", Hostname: "vm1"})
	if err != nil {
		return fmt.Errorf("composing: %w", err)
	}
	machine, err := waitFor(maas, vm.SystemID, "Ready")
	if err != nil {
		return err
	}
	if err := expect(machine.Hostname == "vm1" && machine.VMHost != nil && machine.VMHost.Name == "host-a", "composed %s on %v", machine.Hostname, machine.VMHost); err != nil {
		return err
	}
	if err := maas.Machine.Delete(vm.SystemID); err != nil {
		return fmt.Errorf("deleting the VM: %w", err)
	}
	if err := maas.VMHost.Delete(host.ID); err != nil {
		return fmt.Errorf("deleting: %w", err)
	}
	_, err = maas.VMHost.Get(host.ID)
	return expect(err != nil, "the VM host is there after it was deleted")
}

func dnsResources(maas *client.Client) error {
	record, err := maas.DNSResources.Create(&entity.DNSResourceParams{FQDN: "api.maas", IPAddresses: "10.20.0.60", AddressTTL: 30})
	if err != nil {
		return fmt.Errorf("creating: %w", err)
	}
	if record, err = maas.DNSResource.Update(record.ID, &entity.DNSResourceParams{IPAddresses: "10.20.0.60 10.20.0.61", AddressTTL: 60}); err != nil {
		return fmt.Errorf("updating: %w", err)
	}
	found, err := maas.DNSResources.Get(&entity.DNSResourcesParams{FQDN: "api.maas"})
	if err != nil {
		return fmt.Errorf("finding: %w", err)
	}
	if err := expect(len(found) == 1 && len(found[0].IPAddresses) == 2 && record.AddressTTL == 60, "found %v", found); err != nil {
		return err
	}
	if err := maas.DNSResource.Delete(record.ID); err != nil {
		return fmt.Errorf("deleting: %w", err)
	}
	_, err = maas.DNSResource.Get(record.ID)
	return expect(err != nil, "the record is there after it was deleted")
}

func subnets(maas *client.Client) error {
	made, err := maas.Subnets.Create(&entity.SubnetParams{CIDR: "10.30.0.0/24", Name: "lab", GatewayIP: "10.30.0.1", Managed: true, AllowDNS: true, AllowProxy: true, RDNSMode: 2})
	if err != nil {
		return fmt.Errorf("creating: %w", err)
	}
	read, err := maas.Subnet.Get(made.ID)
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	if err := expect(read.CIDR == "10.30.0.0/24" && read.GatewayIP.Equal(net.ParseIP("10.30.0.1")), "read %v", read); err != nil {
		return err
	}
	statistics, err := maas.Subnet.GetStatistics(made.ID)
	if err != nil {
		return fmt.Errorf("asking for statistics: %w", err)
	}
	if err := expect(statistics.TotalAddresses == 254, "statistics %+v", statistics); err != nil {
		return err
	}
	all, err := maas.Subnets.Get()
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	if err := expect(len(all) >= 2, "listed %d subnets", len(all)); err != nil {
		return err
	}
	return maas.Subnet.Delete(made.ID)
}

func tags(maas *client.Client) error {
	if _, err := maas.Tags.Create(&entity.TagParams{Name: "k8s", Comment: "by gomaasclient"}); err != nil {
		return fmt.Errorf("creating: %w", err)
	}
	found, err := maas.Machines.Get(&entity.MachinesParams{Hostname: []string{"bm3"}})
	if err != nil || len(found) != 1 {
		return fmt.Errorf("finding bm3: %d machines, %w", len(found), err)
	}
	if err := maas.Tag.AddMachines("k8s", []string{found[0].SystemID}); err != nil {
		return fmt.Errorf("tagging: %w", err)
	}
	tagged, err := maas.Tag.GetMachines("k8s")
	if err != nil {
		return fmt.Errorf("listing the tagged: %w", err)
	}
	if err := expect(len(tagged) == 1 && tagged[0].Hostname == "bm3", "tagged %d machines", len(tagged)); err != nil {
		return err
	}
	if err := maas.Tag.RemoveMachines("k8s", []string{found[0].SystemID}); err != nil {
		return fmt.Errorf("untagging: %w", err)
	}
	return maas.Tag.Delete("k8s")
}
