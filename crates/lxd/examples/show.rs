//! Shows the version and objects of a local LXD: `cargo run --example show -- /var/lib/lxd/unix.socket`

use lxd_client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let socket = std::env::args().nth(1).unwrap_or_else(|| "/var/snap/lxd/common/lxd/unix.socket".into());
    let lxd = Client::unix(&socket)?;
    let server = lxd.server().await?;
    let environment = &server.environment;
    println!("{} {} ({})", environment.server, environment.server_version, environment.driver);
    println!("listens on {:?}", environment.addresses);
    for pool in lxd.storage_pools().await? {
        println!("pool {} on {}: {}", pool.name, pool.driver, pool.status);
    }
    for network in lxd.networks().await? {
        println!("network {} of type {}", network.name, network.kind);
    }
    for project in lxd.projects().await? {
        println!("project {} with {} instances", project.name, lxd.instances(&project.name).await?.len());
    }
    Ok(())
}
