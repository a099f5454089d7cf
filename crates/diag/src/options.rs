//! The options that `vmhost-test` and `maas-test` share.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use maas_client::Client;
use secrecy::{ExposeSecret, SecretString};

#[derive(Args)]
pub(crate) struct MaasOptions {
    /// Address of MAAS, such as http://maas.example:5240/MAAS
    #[arg(long, env = "MAAS_ENDPOINT")]
    pub(crate) maas_endpoint: String,
    /// API key of a MAAS administrator. On the command line every user of this machine can read it; the variable hides it
    #[arg(long, env = "MAAS_API_KEY", hide_env_values = true)]
    maas_api_key: SecretString,
    /// Zone of the VM host and its VMs
    #[arg(long, default_value = "default")]
    pub(crate) zone: String,
    /// Resource pool of the VM host and its VMs
    #[arg(long, default_value = "default")]
    pub(crate) resource_pool: String,
    /// File with the CA certificates (PEM) that MAAS's certificate is checked against, besides the system's
    #[arg(long, env = "MAAS_CA_FILE")]
    maas_ca_file: Option<PathBuf>,
    /// LXD project for MAAS; by default the one that lxd-test prepared
    #[arg(long)]
    pub(crate) lxd_project: Option<String>,
    /// Directory in which lxd-test left the key pair; by default /var/lib/capmaas-diag/<uid of this user>
    #[arg(long)]
    pub(crate) key_dir: Option<PathBuf>,
    /// Change nothing; show what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the checklist as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl MaasOptions {
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let mut builder = Client::builder(&self.maas_endpoint, self.maas_api_key.expose_secret());
        if let Some(file) = &self.maas_ca_file {
            let pem = std::fs::read(file).with_context(|| format!("--maas-ca-file {}", file.display()))?;
            builder = builder.certificate_authority(pem);
        }
        Ok(builder.build()?)
    }
}
