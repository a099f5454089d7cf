//! Probes, run for real on the schedule of the manifest.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use k8s_openapi::{
    api::core::v1::{Container, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::{http_get, ports::LOOPBACK};

/// A probe that the node player supports.
#[derive(Clone, Debug)]
pub(super) struct Prober {
    target: Target,
    initial_delay: Duration,
    period: Duration,
    timeout: Duration,
    success_threshold: u32,
    failure_threshold: u32,
}

#[derive(Clone, Debug)]
enum Target {
    Http { address: SocketAddr, path: String, headers: Vec<(String, String)> },
    Tcp(SocketAddr),
}

/// The probes of a container.
#[derive(Clone, Debug, Default)]
pub(super) struct Probers {
    pub(super) startup: Option<Prober>,
    pub(super) readiness: Option<Prober>,
    pub(super) liveness: Option<Prober>,
}

impl Probers {
    /// `moved` maps a port of the manifest to the one that the program really listens on.
    pub(super) fn of(container: &Container, moved: &BTreeMap<u16, u16>) -> Result<Self, String> {
        let make = |probe: &Option<Probe>| probe.as_ref().map(|probe| Prober::new(container, probe, moved)).transpose();
        Ok(Self {
            startup: make(&container.startup_probe)?,
            readiness: make(&container.readiness_probe)?,
            liveness: make(&container.liveness_probe)?,
        })
    }
}

impl Prober {
    fn new(container: &Container, probe: &Probe, moved: &BTreeMap<u16, u16>) -> Result<Self, String> {
        let seconds = |value: Option<i32>, default| Duration::from_secs(number(value).map_or(default, u64::from));
        let address = |host: Option<&str>, port| {
            let wanted = port_number(container, port)?;
            let port = moved.get(&wanted).copied().unwrap_or(wanted);
            let ip =
                host.map_or(Ok(LOOPBACK), str::parse).map_err(|e| format!("the probe's host is no address: {e}"))?;
            Ok::<_, String>(SocketAddr::new(ip, port))
        };
        let target = if let Some(http) = &probe.http_get {
            if http.scheme.as_deref().is_some_and(|scheme| scheme != "HTTP") {
                return Err("the node player makes no HTTPS probes".into());
            }
            let headers = http.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect();
            let path = http.path.clone().unwrap_or_else(|| "/".into());
            Target::Http { address: address(http.host.as_deref(), &http.port)?, path, headers }
        } else if let Some(tcp) = &probe.tcp_socket {
            Target::Tcp(address(tcp.host.as_deref(), &tcp.port)?)
        } else {
            return Err("the node player makes httpGet and tcpSocket probes only".into());
        };
        Ok(Self {
            target,
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            success_threshold: number(probe.success_threshold).unwrap_or(1),
            failure_threshold: number(probe.failure_threshold).unwrap_or(3),
        })
    }

    /// Calls `report` each time a threshold is reached; ends when `report` returns false.
    pub(super) async fn watch(&self, mut report: impl FnMut(bool, &str) -> bool) {
        tokio::time::sleep(self.initial_delay).await;
        let (mut successes, mut failures) = (0, 0);
        loop {
            let failure = self.make().await.err();
            (successes, failures) = if failure.is_none() { (successes + 1, 0) } else { (0, failures + 1) };
            let keep_on = if successes >= self.success_threshold {
                report(true, "")
            } else if failures >= self.failure_threshold {
                report(false, failure.as_deref().unwrap_or_default())
            } else {
                true
            };
            if !keep_on {
                return;
            }
            tokio::time::sleep(self.period).await;
        }
    }

    async fn make(&self) -> Result<(), String> {
        let attempt = async {
            match &self.target {
                Target::Tcp(address) => tokio::net::TcpStream::connect(address).await.map(|_| 200),
                Target::Http { address, path, headers } => http_get::status(*address, path, headers).await,
            }
        };
        match tokio::time::timeout(self.timeout, attempt).await {
            Ok(Ok(code)) if (200..400).contains(&code) => Ok(()),
            Ok(Ok(code)) => Err(format!("HTTP probe failed with statuscode: {code}")),
            Ok(Err(error)) => Err(format!("probe failed: {error}")),
            Err(_) => Err(format!("probe failed: no answer within {} s", self.timeout.as_secs())),
        }
    }
}

fn number(value: Option<i32>) -> Option<u32> {
    value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0)
}

fn port_number(container: &Container, port: &IntOrString) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|port| port.name.as_deref() == Some(name))
            .map(|port| port.container_port)
            .ok_or_else(|| format!("the probe's port {name:?} is not among the container's ports"))?,
    };
    u16::try_from(number).map_err(|_| format!("{number} is no port"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_probe_finds_its_port_by_name_and_where_it_was_moved_to() {
        let container: Container = serde_json::from_value(json!({
            "name": "c",
            "ports": [{"name": "health", "containerPort": 8081}],
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 2},
            "livenessProbe": {"tcpSocket": {"port": 8082}},
        }))
        .unwrap();
        let probers = Probers::of(&container, &BTreeMap::from([(8081, 18081)])).unwrap();
        let readiness = probers.readiness.unwrap();
        assert!(
            matches!(&readiness.target, Target::Http { address, path, .. } if address.port() == 18081 && path == "/readyz")
        );
        assert_eq!((readiness.period, readiness.failure_threshold), (Duration::from_secs(2), 3));
        assert!(matches!(probers.liveness.unwrap().target, Target::Tcp(address) if address.port() == 8082));
    }

    #[test]
    fn a_probe_that_cannot_be_made_is_told() {
        let exec = json!({"name": "c", "livenessProbe": {"exec": {"command": ["true"]}}});
        let error = Probers::of(&serde_json::from_value(exec).unwrap(), &BTreeMap::new()).unwrap_err();
        assert!(error.contains("httpGet and tcpSocket probes only"), "{error}");
    }
}
