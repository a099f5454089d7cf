module capmaas.dev/tools/cluster-api-1.5

go 1.24.0

require sigs.k8s.io/cluster-api v1.5.0

tool (
	sigs.k8s.io/cluster-api
	sigs.k8s.io/cluster-api/bootstrap/kubeadm
	sigs.k8s.io/cluster-api/controlplane/kubeadm
)
