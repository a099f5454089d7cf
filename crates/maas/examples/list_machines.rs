//! Lists the machines of a MAAS:
//!
//! ```sh
//! MAAS_ENDPOINT=http://maas.example:5240/MAAS MAAS_API_KEY=consumer:token:secret \
//!     cargo run -p maas-client --example list_machines [agent-name]
//! ```
//!
//! `MAAS_CA_FILE` may name a PEM file with additional certificate authorities.

use anyhow::{Context, anyhow};
use maas_client::{Client, MachineFilter};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("a cryptography provider is installed already"))?;
    let endpoint = std::env::var("MAAS_ENDPOINT").context("MAAS_ENDPOINT says where MAAS answers")?;
    let api_key = std::env::var("MAAS_API_KEY").context("MAAS_API_KEY holds a key: consumer:token:secret")?;
    let mut builder = Client::builder(&endpoint, &api_key);
    if let Ok(file) = std::env::var("MAAS_CA_FILE") {
        builder = builder.certificate_authority(std::fs::read(&file).with_context(|| format!("reading {file}"))?);
    }
    let client = builder.build()?;
    let user = client.whoami().await?;
    let version = client.capabilities().await?.version;
    println!("MAAS {version} at {}, as {}", client.endpoint(), user.username);
    let filter = MachineFilter { agent_name: std::env::args().nth(1), ..MachineFilter::default() };
    for machine in client.machines().list(&filter).await? {
        println!(
            "{:8} {:24} {:20} {:10} {}",
            machine.system_id,
            machine.fqdn.as_deref().unwrap_or("-"),
            machine.status.map_or_else(|| "-".to_owned(), |status| status.to_string()),
            machine.owner.as_deref().unwrap_or("-"),
            machine.ip_addresses.join(" "),
        );
    }
    Ok(())
}
