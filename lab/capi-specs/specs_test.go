package specs

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/test/e2e"
)

// Each has the name that it has in Cluster API's own suite, by which docs/cluster-api-specs.md lists it.

var _ = Describe("When following the Cluster API quick-start", func() {
	e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
		return e2e.QuickStartSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
			PostMachinesProvisioned: resilience(false),
		}
	})
})

var _ = Describe("When following the Cluster API quick-start with ClusterClass [PR-Blocking] [ClusterClass]", func() {
	e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
		return e2e.QuickStartSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
			Flavor:                  ptr.To("topology"),
			PostMachinesProvisioned: resilience(true),
		}
	})
})

var _ = Describe("When following the Cluster API quick-start with ClusterClass without any worker definitions [ClusterClass]", func() {
	e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
		return e2e.QuickStartSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
			Flavor:             ptr.To("topology-kcp-only"),
			WorkerMachineCount: ptr.To[int64](0),
		}
	})
})

var _ = Describe("When testing MachineDeployment scale out/in", func() {
	e2e.MachineDeploymentScaleSpec(ctx, func() e2e.MachineDeploymentScaleSpecInput {
		return e2e.MachineDeploymentScaleSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
		}
	})
})

var _ = Describe("When testing MachineDeployment remediation", func() {
	e2e.MachineDeploymentRemediationSpec(ctx, func() e2e.MachineDeploymentRemediationSpecInput {
		return e2e.MachineDeploymentRemediationSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
		}
	})
})

var _ = Describe("When testing KCP and MachineDeployment rolling upgrades and in-place taint propagation", func() {
	e2e.KCPAndMachineDeploymentRolloutSpec(ctx, func() e2e.KCPAndMachineDeploymentRolloutSpecInput {
		return e2e.KCPAndMachineDeploymentRolloutSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
			Flavor: "kcp-md-taints",
		}
	})
})

var _ = Describe("When testing ClusterClass changes [ClusterClass]", func() {
	e2e.ClusterClassChangesSpec(ctx, func() e2e.ClusterClassChangesSpecInput {
		return e2e.ClusterClassChangesSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
			Flavor:                   "topology",
			ModifyControlPlaneFields: map[string]any{"spec.kubeadmConfigSpec.verbosity": int64(4)},
			ModifyMachineDeploymentBootstrapConfigTemplateFields:       map[string]any{"spec.template.spec.verbosity": int64(4)},
			ModifyMachineDeploymentInfrastructureMachineTemplateFields: map[string]any{"spec.template.spec.minCPU": int64(2)},
		}
	})
})

var _ = Describe("When testing KCP adoption", func() {
	e2e.KCPAdoptionSpec(ctx, func() e2e.KCPAdoptionSpecInput {
		return e2e.KCPAdoptionSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
		}
	})
})

var _ = Describe("When upgrading a workload cluster using ClusterClass [ClusterClass]", func() {
	e2e.ClusterUpgradeConformanceSpec(ctx, func() e2e.ClusterUpgradeConformanceSpecInput {
		return e2e.ClusterUpgradeConformanceSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
			Flavor:                   ptr.To("topology"),
			ControlPlaneMachineCount: ptr.To[int64](1),
			WorkerMachineCount:       ptr.To[int64](2),
			SkipConformanceTests:     true,
		}
	})
})

var _ = Describe("When upgrading a workload cluster using ClusterClass with a HA control plane using scale-in rollout [ClusterClass]", func() {
	e2e.ClusterUpgradeConformanceSpec(ctx, func() e2e.ClusterUpgradeConformanceSpecInput {
		return e2e.ClusterUpgradeConformanceSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
			Flavor:                   ptr.To("kcp-scale-in"),
			ControlPlaneMachineCount: ptr.To[int64](3),
			WorkerMachineCount:       ptr.To[int64](1),
			SkipConformanceTests:     true,
		}
	})
})

var _ = Describe("When performing cluster deletion with ClusterClass [ClusterClass]", func() {
	kind := func(kinds ...string) func(corev1.ObjectReference, []metav1.OwnerReference) bool {
		return func(object corev1.ObjectReference, _ []metav1.OwnerReference) bool {
			return slices.Contains(kinds, object.Kind)
		}
	}
	with := func(matches func(corev1.ObjectReference, []metav1.OwnerReference) bool, owners ...string) func(corev1.ObjectReference, []metav1.OwnerReference) bool {
		return func(object corev1.ObjectReference, references []metav1.OwnerReference) bool {
			owned := slices.ContainsFunc(references, func(owner metav1.OwnerReference) bool { return slices.Contains(owners, owner.Kind) })
			return matches(object, references) || object.Kind == "Machine" && owned
		}
	}
	e2e.ClusterDeletionSpec(ctx, func() e2e.ClusterDeletionSpecInput {
		return e2e.ClusterDeletionSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
			Flavor:                   ptr.To("topology"),
			ControlPlaneMachineCount: ptr.To[int64](3),
			// Workers first, then the control plane, then the infrastructure.
			ClusterDeletionPhases: []e2e.ClusterDeletionPhase{
				{
					ObjectFilter:         with(kind("MachineDeployment", "MachineSet"), "MachineDeployment", "MachineSet"),
					BlockingObjectFilter: kind("Machine"),
				},
				{
					ObjectFilter:         with(kind("KubeadmControlPlane"), "KubeadmControlPlane"),
					BlockingObjectFilter: kind("Machine"),
				},
				{
					ObjectFilter:         kind("MaasCluster"),
					BlockingObjectFilter: kind("MaasCluster"),
				},
			},
		}
	})
})

var _ = Describe("When following the Cluster API quick-start with v1beta1 ClusterClass [ClusterClass]", func() {
	e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
		return e2e.QuickStartSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
			Flavor:                  ptr.To("topology-v1beta1"),
			PostMachinesProvisioned: stability,
		}
	})
})

var _ = Describe("When upgrading a workload cluster using ClusterClass with a HA control plane [ClusterClass]", func() {
	e2e.ClusterUpgradeConformanceSpec(ctx, func() e2e.ClusterUpgradeConformanceSpecInput {
		return e2e.ClusterUpgradeConformanceSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
			Flavor:                             ptr.To("kcp-pre-drain"),
			ControlPlaneMachineCount:           ptr.To[int64](3),
			WorkerMachineCount:                 ptr.To[int64](1),
			SkipConformanceTests:               true,
			PreWaitForControlPlaneToBeUpgraded: letGoWhenHealthy,
		}
	})
})

var _ = Describe("When performing chained upgrades for workload cluster using ClusterClass in a different NS with RuntimeSDK [ClusterClass]", func() {
	e2e.ClusterUpgradeWithRuntimeSDKSpec(ctx, func() e2e.ClusterUpgradeWithRuntimeSDKSpecInput {
		return e2e.ClusterUpgradeWithRuntimeSDKSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
			Flavor:                                ptr.To("topology"),
			DeployClusterClassInSeparateNamespace: true,
			KubernetesVersionFrom:                 e2eConfig.MustGetVariable(e2e.KubernetesVersionChainedUpgradeFrom),
			// For each of them MAAS has an image.
			KubernetesVersions:        []string{"v1.33.12", "v1.34.11", "v1.35.8", "v1.36.4"},
			ExtensionConfigName:       "k8s-chained-upgrade-with-runtimesdk-cross-ns",
			ExtensionServiceNamespace: extensionNamespace,
			ExtensionServiceName:      extensionService,
			PostUpgrade:               stability,
		}
	})
})

var _ = Describe("When upgrading a workload cluster using ClusterClass with RuntimeSDK [ClusterClass]", func() {
	e2e.ClusterUpgradeWithRuntimeSDKSpec(ctx, func() e2e.ClusterUpgradeWithRuntimeSDKSpecInput {
		return e2e.ClusterUpgradeWithRuntimeSDKSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
			Flavor:                    ptr.To("topology"),
			ExtensionServiceNamespace: extensionNamespace,
			ExtensionServiceName:      extensionService,
			PostUpgrade:               stability,
		}
	})
})

var _ = Describe("When upgrading a workload cluster using ClusterClass in a different NS with RuntimeSDK [ClusterClass]", func() {
	e2e.ClusterUpgradeWithRuntimeSDKSpec(ctx, func() e2e.ClusterUpgradeWithRuntimeSDKSpecInput {
		return e2e.ClusterUpgradeWithRuntimeSDKSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
			Flavor:                                ptr.To("topology"),
			DeployClusterClassInSeparateNamespace: true,
			ExtensionConfigName:                   "k8s-upgrade-with-runtimesdk-cross-ns",
			ExtensionServiceNamespace:             extensionNamespace,
			ExtensionServiceName:                  extensionService,
			PostUpgrade:                           stability,
		}
	})
})

var _ = Describe("When testing ClusterClass rollouts [ClusterClass]", func() {
	e2e.ClusterClassRolloutSpec(ctx, func() e2e.ClusterClassRolloutSpecInput {
		return e2e.ClusterClassRolloutSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
			Flavor:                         "topology-taints",
			FilterMetadataBeforeValidation: withoutOurRecords,
		}
	})
})

var _ = Describe("When testing the machinery for scale testing using in-memory backend", func() {
	e2e.ScaleSpec(ctx, func() e2e.ScaleSpecInput {
		return e2e.ScaleSpecInput{
			E2EConfig: e2eConfig, ClusterctlConfigPath: *clusterctlPath, BootstrapClusterProxy: bootstrapClusterProxy, ArtifactFolder: *artifacts,
			Flavor:           ptr.To("topology"),
			ClusterClassName: "maas",
			// As many as twelve machines of a MAAS allow, with one more for each control plane and each group of workers that is upgraded.
			ClusterCount:                      ptr.To[int64](3),
			Concurrency:                       ptr.To[int64](3),
			ControlPlaneMachineCount:          ptr.To[int64](1),
			MachineDeploymentCount:            ptr.To[int64](1),
			WorkerPerMachineDeploymentCount:   ptr.To[int64](1),
			AdditionalClusterClassCount:       ptr.To[int64](1),
			DeployClusterInSeparateNamespaces: ptr.To(false),
			UseCrossNamespaceClusterClass:     ptr.To(false),
			PostScaleClusterNamespaceCreated:  secretsOfEachCluster,
		}
	})
})
