//! The kubeadm instructions for a machine, read from the cloud-config of Cluster API's kubeadm bootstrap provider.

use serde_json::Value;

use crate::error::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `kubeadm init`: the first of a control plane.
    Init,
    /// `kubeadm join --control-plane`.
    ControlPlane,
    /// `kubeadm join`.
    Worker,
}

/// The parts of a kubeadm configuration that a simulated machine uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kubeadm {
    pub(crate) role: Role,
    /// Host and port of the control plane's endpoint.
    pub(crate) endpoint: (String, u16),
    /// `init`: the whole ClusterConfiguration, which kubeadm stores in the cluster.
    pub(crate) cluster_configuration: Option<String>,
    /// `join`: the token, `id.secret`.
    pub(crate) token: Option<String>,
    /// `init`: the certificate of the cluster's authority, as written to the machine.
    pub(crate) ca: Option<String>,
}

impl Kubeadm {
    /// Reads a cloud-config.
    pub(crate) fn read(user_data: &str) -> Result<Self> {
        let wrong = |why: String| Error::invalid("the user data of a machine", why);
        let config: Value = serde_saphyr::from_str(user_data).map_err(|error| wrong(error.to_string()))?;
        let files = || config["write_files"].as_array().into_iter().flatten();
        let file = |path: &str| files().find(|file| file["path"] == path).and_then(|file| file["content"].as_str());
        let documents = |text: &str| -> Result<Vec<Value>> {
            serde_saphyr::from_multiple(text).map_err(|error| wrong(error.to_string()))
        };
        if let Some(text) = file("/run/kubeadm/kubeadm.yaml") {
            let all = documents(text)?;
            let cluster = all.iter().find(|document| document["kind"] == "ClusterConfiguration");
            let cluster = cluster.ok_or_else(|| wrong("kubeadm.yaml holds no ClusterConfiguration".into()))?;
            return Ok(Self {
                role: Role::Init,
                endpoint: endpoint(&cluster["controlPlaneEndpoint"])?,
                cluster_configuration: Some(cluster.to_string()),
                token: None,
                ca: file("/etc/kubernetes/pki/ca.crt").map(|text| text.trim().to_owned()),
            });
        }
        let text = file("/run/kubeadm/kubeadm-join-config.yaml")
            .ok_or_else(|| wrong("neither kubeadm.yaml nor kubeadm-join-config.yaml is written".into()))?;
        let all = documents(text)?;
        let join = all.iter().find(|document| document["kind"] == "JoinConfiguration");
        let join = join.ok_or_else(|| wrong("kubeadm-join-config.yaml holds no JoinConfiguration".into()))?;
        let discovery = &join["discovery"]["bootstrapToken"];
        Ok(Self {
            role: if join["controlPlane"].is_object() { Role::ControlPlane } else { Role::Worker },
            endpoint: endpoint(&discovery["apiServerEndpoint"])?,
            cluster_configuration: None,
            token: discovery["token"].as_str().map(str::to_owned),
            ca: None,
        })
    }
}

fn endpoint(value: &Value) -> Result<(String, u16)> {
    let text = value.as_str().unwrap_or_default();
    text.rsplit_once(':')
        .and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)))
        .ok_or_else(|| Error::invalid("the endpoint in the user data of a machine", format!("is {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_machine_of_a_control_plane_is_told_from_those_that_join() {
        let init = "## template: jinja\n#cloud-config\n\nwrite_files:\n\
                    -   path: /etc/kubernetes/pki/ca.crt\n    content: |\n      PEM\n      \n\
                    -   path: /run/kubeadm/kubeadm.yaml\n    content: |\n      ---\n      apiVersion: kubeadm.k8s.io/v1beta4\n      \
                    controlPlaneEndpoint: c1.maas:6443\n      kind: ClusterConfiguration\n      kubernetesVersion: v1.36.4\n      \n      \
                    ---\n      kind: InitConfiguration\n      localAPIEndpoint: {}\n      \n\
                    runcmd:\n  - 'kubeadm init --config /run/kubeadm/kubeadm.yaml '\n";
        let read = Kubeadm::read(init).unwrap();
        assert_eq!((read.role, read.endpoint), (Role::Init, ("c1.maas".into(), 6443)));
        assert_eq!(read.ca.as_deref(), Some("PEM"));
        assert!(read.cluster_configuration.unwrap().contains("v1.36.4"));

        let join = |more: &str| {
            let text = format!(
                "#cloud-config\nwrite_files:\n-   path: /run/kubeadm/kubeadm-join-config.yaml\n    content: |\n      ---\n      \
                 discovery:\n        bootstrapToken:\n          apiServerEndpoint: c1.maas:6443\n          token: abc.def\n      \
                 kind: JoinConfiguration\n{more}"
            );
            Kubeadm::read(&text).unwrap()
        };
        assert_eq!((join("").role, join("").token.as_deref()), (Role::Worker, Some("abc.def")));
        assert_eq!(join("      controlPlane:\n        localAPIEndpoint: {}\n").role, Role::ControlPlane);
    }

    #[test]
    fn user_data_that_is_not_kubeadms_is_an_error() {
        let error = Kubeadm::read("#cloud-config\nruncmd: []\n").unwrap_err();
        assert!(error.to_string().contains("neither kubeadm.yaml nor"), "{error}");
    }
}
