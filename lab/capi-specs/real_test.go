package specs

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/cluster-api/test/framework"
)

// The specs that look at more of a machine than its Node. capi-specs runs those with this label before machines that boot, all others before
// machines that are played.
var realMachines = Label("real")

var _ = Describe("When testing KCP remediation", realMachines, func() {
	e2e.KCPRemediationSpec(ctx, func() e2e.KCPRemediationSpecInput {
		return e2e.KCPRemediationSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
		}
	})
})

var _ = Describe("When testing Node drain", realMachines, func() {
	e2e.NodeDrainTimeoutSpec(ctx, func() e2e.NodeDrainTimeoutSpecInput {
		return e2e.NodeDrainTimeoutSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
			Flavor:                    ptr.To("topology-real"),
			VerifyNodeVolumeDetach:    true,
			CreateAdditionalResources: attachVolumes,
		}
	})
})

// A volume that is attached to every Node and that nobody detaches, as in Cluster API's own suite.
func attachVolumes(ctx context.Context, proxy framework.ClusterProxy, cluster *clusterv1.Cluster) {
	workload := proxy.GetWorkloadCluster(ctx, cluster.Namespace, cluster.Name).GetClient()
	nodes := &corev1.NodeList{}
	Expect(workload.List(ctx, nodes)).To(Succeed())
	for _, node := range nodes.Items {
		attachment := &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: "va-" + node.Name, Finalizers: []string{"test.cluster.x-k8s.io/block"}},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: "manual",
				NodeName: node.Name,
				Source:   storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("foo")},
			},
		}
		Expect(workload.Create(ctx, attachment)).To(Succeed())
		attachment.Status.Attached = true
		Expect(workload.Status().Update(ctx, attachment)).To(Succeed())
	}
}
