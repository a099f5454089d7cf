// Package specs runs Cluster API's own end-to-end specs, as they are in its module, against a management cluster in which capmaas
// is installed. The program capi-specs of lab/e2e starts that cluster, a MAAS in front of machines, and this.
package specs

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	"sigs.k8s.io/cluster-api/test/framework/ginkgoextensions"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Cluster API's name for the flag, so that whoever knows its suites finds it here. This suite can do nothing else.
const useExistingCluster = "e2e.use-existing-cluster"

var (
	configPath     = flag.String("e2e.config", "", "the e2e configuration: providers, variables, intervals")
	clusterctlPath = flag.String("e2e.clusterctl-config", "", "the configuration of clusterctl that names the local repository")
	artifacts      = flag.String("e2e.artifacts-folder", "", "where logs and dumps of objects go")
	existing       = flag.Bool(useExistingCluster, false, "use the cluster of KUBECONFIG, in which all providers run already")

	ctx = ctrl.SetupSignalHandler()

	e2eConfig             *clusterctl.E2EConfig
	bootstrapClusterProxy framework.ClusterProxy
)

func TestE2E(t *testing.T) {
	if *configPath == "" {
		t.Skip("make test-capi runs the specs")
	}
	g := NewWithT(t)
	g.Expect(*existing).To(BeTrue(), "this suite starts no cluster: give it -"+useExistingCluster+" and a KUBECONFIG")
	ctrl.SetLogger(klog.Background())
	g.Expect(os.MkdirAll(*artifacts, 0o755)).To(Succeed())
	RegisterFailHandler(Fail)
	// For what a spec gives no interval. Gomega's own timeout is one second, within which a busy machine may not even answer.
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(time.Second)
	log, err := ginkgoextensions.EnableFileLogging(filepath.Join(*artifacts, "ginkgo-log.txt"))
	g.Expect(err).ToNot(HaveOccurred())
	defer log.Close()
	RunSpecs(t, "Cluster API's specs against capmaas")
}

var _ = BeforeSuite(func() {
	e2eConfig = clusterctl.LoadE2EConfig(ctx, clusterctl.LoadE2EConfigInput{ConfigPath: *configPath})
	scheme := runtime.NewScheme()
	framework.TryAddDefaultSchemes(scheme)
	bootstrapClusterProxy = framework.NewClusterProxy("bootstrap", os.Getenv("KUBECONFIG"), scheme)
})

var _ = AfterSuite(func() {
	if bootstrapClusterProxy != nil {
		bootstrapClusterProxy.Dispose(ctx)
	}
})
