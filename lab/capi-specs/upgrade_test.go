package specs

import (
	"fmt"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const preDrainHook = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/kcp-ready-check"

// Lets one control plane Machine go after the other, each only while every Node is Ready and has its kube-proxy: a cluster that is healthy
// again not before all of them are new would not get past this.
func letGoWhenHealthy(proxy framework.ClusterProxy, namespace, name string) {
	cluster := &clusterv1.Cluster{}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	Expect(proxy.GetClient().Get(ctx, key, cluster)).To(Succeed())
	workload := proxy.GetWorkloadCluster(ctx, namespace, name).GetClient()
	Eventually(func(g Gomega) {
		machines := framework.GetControlPlaneMachinesByCluster(ctx, framework.GetControlPlaneMachinesByClusterInput{
			Lister: proxy.GetClient(), ClusterName: name, Namespace: namespace,
		})
		nodes, proxies := &corev1.NodeList{}, &corev1.PodList{}
		g.Expect(workload.List(ctx, nodes)).To(Succeed())
		g.Expect(workload.List(ctx, proxies, client.InNamespace("kube-system"), client.MatchingLabels{"k8s-app": "kube-proxy"})).To(Succeed())
		g.Expect(proxies.Items).To(HaveLen(len(nodes.Items)))
		for _, pod := range proxies.Items {
			g.Expect(isTrue(pod.Status.Conditions, corev1.PodReady)).To(BeTrue(), "%s is not Ready", pod.Name)
		}
		for _, node := range nodes.Items {
			for _, condition := range node.Status.Conditions {
				g.Expect(condition.Type != corev1.NodeReady || condition.Status == corev1.ConditionTrue).To(BeTrue(), "%s is not Ready", node.Name)
			}
		}
		new := 0
		for i := range machines {
			machine := &machines[i]
			if machine.Spec.Version == cluster.Spec.Topology.Version && conditions.IsTrue(machine, clusterv1.MachineNodeHealthyCondition) {
				new++
			}
			if _, held := machine.Annotations[preDrainHook]; held && !machine.DeletionTimestamp.IsZero() {
				before := machine.DeepCopy()
				delete(machine.Annotations, preDrainHook)
				g.Expect(proxy.GetClient().Patch(ctx, machine, client.MergeFrom(before))).To(Succeed())
			}
		}
		g.Expect(fmt.Sprintf("%d of %d", new, len(machines))).To(Equal("3 of 3"))
	}, e2eConfig.GetIntervals("k8s-upgrade-and-conformance", "wait-machine-upgrade")...).Should(Succeed())
}

func isTrue(conditions []corev1.PodCondition, wanted corev1.PodConditionType) bool {
	for _, condition := range conditions {
		if condition.Type == wanted {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Where the Runtime Extension is found that the specs configure.
const (
	extensionNamespace = "test-extension-system"
	extensionService   = "test-extension-webhook-service"
)
