package specs

import (
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlcluster "sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type ownerAssertions = map[string]func(types.NamespacedName, []metav1.OwnerReference) error

// Who owns our kinds, in the form in which Cluster API's framework knows it of its own providers'.
func maasOwners(topology bool) ownerAssertions {
	owner := func(kind string) metav1.OwnerReference {
		return metav1.OwnerReference{Kind: kind, APIVersion: clusterv1.GroupVersion.String()}
	}
	controlled := func(reference metav1.OwnerReference) metav1.OwnerReference {
		reference.Controller = ptr.To(true)
		return reference
	}
	cluster := owner("Cluster")
	if topology {
		cluster = controlled(cluster)
	}
	exactly := func(wanted ...metav1.OwnerReference) func(types.NamespacedName, []metav1.OwnerReference) error {
		return func(_ types.NamespacedName, found []metav1.OwnerReference) error {
			return framework.HasExactOwners(found, wanted...)
		}
	}
	return ownerAssertions{
		"MaasCluster": exactly(cluster),
		"MaasMachine": exactly(controlled(owner("Machine"))),
		"MaasMachineTemplate": func(_ types.NamespacedName, found []metav1.OwnerReference) error {
			return framework.HasOneOfExactOwners(found, []metav1.OwnerReference{owner("Cluster")}, []metav1.OwnerReference{owner("ClusterClass")})
		},
		"MaasClusterTemplate": exactly(owner("ClusterClass")),
	}
}

var maasFinalizers = map[string]func(types.NamespacedName) []string{
	"MaasMachine": func(types.NamespacedName) []string { return []string{"maasmachine.infrastructure.cluster.x-k8s.io"} },
	"MaasCluster": func(types.NamespacedName) []string { return []string{"maascluster.infrastructure.cluster.x-k8s.io"} },
}

// What Cluster API's own suite does in its quick starts once all machines are there: owner references and finalizers that somebody strips
// come back, and nobody writes anything when nothing happens.
func resilience(topology bool) func(framework.ClusterProxy, string, string) {
	return func(proxy framework.ClusterProxy, namespace, cluster string) {
		filter := clusterctlcluster.FilterClusterObjectsWithNameFilter(cluster)
		owners := []map[string]func(types.NamespacedName, []metav1.OwnerReference) error{
			framework.CoreOwnerReferenceAssertion,
			framework.ExpOwnerReferenceAssertions,
			maasOwners(topology),
			framework.KubeadmBootstrapOwnerReferenceAssertions,
			framework.KubeadmControlPlaneOwnerReferenceAssertions(topology),
			framework.KubernetesReferenceAssertions,
		}
		By("Checking that owner references are resilient")
		framework.ValidateOwnerReferencesResilience(ctx, proxy, namespace, cluster, filter, owners...)
		By("Checking that owner references are updated to the correct API version")
		framework.ValidateOwnerReferencesOnUpdate(ctx, proxy, namespace, cluster, filter, owners...)
		By("Checking that finalizers are resilient")
		core := framework.CoreFinalizersAssertionWithLegacyClusters
		if topology {
			core = framework.CoreFinalizersAssertionWithClassyClusters
		}
		framework.ValidateFinalizersResilience(ctx, proxy, namespace, cluster, filter,
			core, framework.KubeadmControlPlaneFinalizersAssertion, framework.ExpFinalizersAssertion, maasFinalizers)
		stability(proxy, namespace, cluster)
	}
}

// What the manager writes down on our own kinds is none of what Cluster API propagates.
func withoutOurRecords(object client.Object) clusterv1.ObjectMeta {
	annotations := maps.Clone(object.GetAnnotations())
	maps.DeleteFunc(annotations, func(key, _ string) bool { return strings.HasPrefix(key, "infrastructure.cluster.x-k8s.io/") })
	return clusterv1.ObjectMeta{Labels: object.GetLabels(), Annotations: annotations}
}

func stability(proxy framework.ClusterProxy, namespace, cluster string) {
	By("Checking that resourceVersions are stable")
	framework.ValidateResourceVersionStable(ctx, framework.ValidateResourceVersionStableInput{
		ClusterProxy:             proxy,
		Namespace:                namespace,
		OwnerGraphFilterFunction: clusterctlcluster.FilterClusterObjectsWithNameFilter(cluster),
		WaitToBecomeStable:       e2eConfig.GetIntervals("quick-start", "wait-resource-versions-become-stable"),
		WaitToRemainStable:       e2eConfig.GetIntervals("quick-start", "wait-resource-versions-remain-stable"),
	})
}
