package specs

import (
	"bytes"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/test/framework"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"
)

// The spec makes many Clusters of one template and takes all that is not a Cluster for the class's. The Secrets of a played control plane
// are each Cluster's own.
func secretsOfEachCluster(_ framework.ClusterProxy, _, _ string, class, cluster []byte) ([]byte, []byte) {
	objects, err := utilyaml.ToUnstructured(class)
	Expect(err).ToNot(HaveOccurred())
	var secrets []unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() == "Secret" {
			secrets = append(secrets, object)
		}
	}
	text, err := utilyaml.FromUnstructured(secrets)
	Expect(err).ToNot(HaveOccurred())
	return class, bytes.Join([][]byte{text, cluster}, []byte("\n---\n"))
}
