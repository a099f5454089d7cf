//! The running manager: its Pod, its addresses, its metrics.

use anyhow::Context as _;
use capmaas_testbed::{NodePlayer, Testbed};

pub const MANAGER_NAMESPACE: &str = "capmaas-system";
/// The flag for its health probe address.
pub const HEALTH: &str = "--health-addr";
/// The flag for its metrics address.
pub const DIAGNOSTICS: &str = "--diagnostics-address";
/// The ServiceAccount that may read metrics, in the namespace `default`.
const READER: &str = "metrics-reader";

/// The name of the manager's Pod.
pub async fn manager_pod(testbed: &Testbed) -> anyhow::Result<String> {
    let arguments = ["get", "pods", "-n", MANAGER_NAMESPACE, "-l", "control-plane=controller-manager", "-o", "name"];
    let printed = testbed.kubectl(arguments).await?;
    let name = printed.lines().next().and_then(|line| line.strip_prefix("pod/")).context("the manager has no Pod")?;
    Ok(name.to_owned())
}

/// The address that a flag of the running manager names.
pub async fn manager_address(testbed: &Testbed, player: &NodePlayer, flag: &str) -> anyhow::Result<String> {
    let pod = manager_pod(testbed).await?;
    let id = *player.process_ids(MANAGER_NAMESPACE, &pod).first().context("the manager does not run")?;
    let arguments = std::fs::read(format!("/proc/{id}/cmdline"))?;
    let arguments = String::from_utf8_lossy(&arguments).into_owned();
    let mut given = arguments.split('\0').filter_map(|argument| argument.strip_prefix(flag)?.strip_prefix('='));
    Ok(given.next_back().with_context(|| format!("the manager was started without {flag}"))?.to_owned())
}

/// The token of an account that may read metrics, as Prometheus would use.
pub async fn reader_token(testbed: &Testbed) -> anyhow::Result<String> {
    // Both may exist already.
    let _ = testbed.kubectl(["create", "serviceaccount", "-n", "default", READER]).await;
    let (role, account) = ("--clusterrole=capmaas-metrics-reader", format!("--serviceaccount=default:{READER}"));
    let _ = testbed.kubectl(["create", "clusterrolebinding", READER, role, &account]).await;
    Ok(testbed.service_account_token("default", READER).await?)
}

/// Status and body of the manager's `GET /metrics`. Its certificate is self-signed and is not verified.
pub async fn scrape(address: &str, token: Option<&str>) -> anyhow::Result<(u16, String)> {
    let client = reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true).build()?;
    let mut request = client.get(format!("https://{address}/metrics"));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let answer = request.send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}
