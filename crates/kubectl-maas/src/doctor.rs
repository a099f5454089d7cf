//! `kubectl maas doctor`: checks all prerequisites of a machine at once.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use jiff::Timestamp;
use maas_client::Client;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::{condition, hosts, text};

/// OAuth only accepts signatures of the last five minutes.
const SKEW_SECONDS: i64 = 120;

/// One check.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub subject: String,
    pub found: String,
    /// What to do about it; `None` if it is right.
    pub mend: Option<String>,
}

#[derive(Debug, Default)]
pub struct Report {
    findings: Vec<Finding>,
}

impl Report {
    fn good(&mut self, subject: &str, found: impl Into<String>) {
        self.findings.push(Finding { subject: subject.into(), found: found.into(), mend: None });
    }

    fn bad(&mut self, subject: &str, found: impl Into<String>, mend: impl Into<String>) {
        self.findings.push(Finding { subject: subject.into(), found: found.into(), mend: Some(mend.into()) });
    }

    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.findings.iter().all(|finding| finding.mend.is_none())
    }

    /// For people.
    pub fn render(&self) -> String {
        let mut out = String::new();
        for finding in &self.findings {
            let mark = if finding.mend.is_none() { "[ ok ]" } else { "[FAIL]" };
            let _ = writeln!(out, "{mark} {:<12} {}", finding.subject, finding.found);
            if let Some(mend) = &finding.mend {
                let _ = writeln!(out, "{:20}{mend}", "");
            }
        }
        out
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        self.findings.iter().map(|it| json!({"subject": it.subject, "found": it.found, "mend": it.mend})).collect()
    }
}

/// What the objects require of MAAS.
#[derive(Debug, Default)]
pub struct Asked {
    zones: BTreeSet<String>,
    pools: BTreeSet<String>,
    images: BTreeSet<String>,
    domains: BTreeSet<String>,
    identities: bool,
}

impl Asked {
    /// Reads it from MaasClusters and templates.
    pub fn of(clusters: &[Value], templates: &[Value]) -> Self {
        let mut asked = Self::default();
        let mut put = |set: fn(&mut Self) -> &mut BTreeSet<String>, name: &str| {
            if !name.is_empty() {
                set(&mut asked).insert(name.to_owned());
            }
        };
        for cluster in clusters {
            put(|it| &mut it.domains, text(cluster, "/spec/dnsDomain"));
            put(|it| &mut it.zones, text(cluster, "/spec/lxdConfig/zone"));
            put(|it| &mut it.pools, text(cluster, "/spec/lxdConfig/resourcePool"));
            for zone in cluster["spec"]["failureDomains"].as_array().into_iter().flatten() {
                put(|it| &mut it.zones, zone.as_str().unwrap_or_default());
            }
        }
        for template in templates {
            put(|it| &mut it.zones, text(template, "/spec/template/spec/failureDomain"));
            put(|it| &mut it.pools, text(template, "/spec/template/spec/resourcePool"));
            put(|it| &mut it.images, text(template, "/spec/template/spec/image"));
        }
        asked.identities = clusters.iter().any(|cluster| cluster["spec"].get("identityRef").is_some());
        asked
    }
}

/// Checks Kubernetes: the kinds, the manager, the credentials condition of each cluster. Returns what MAAS must have.
pub async fn check_kubernetes(cluster: &Cluster, system_namespace: &str, all: bool, report: &mut Report) -> Asked {
    let clusters = match cluster.ours("MaasCluster", all).await {
        Ok(clusters) => {
            report.good("Kinds", format!("{} MaasClusters can be read", clusters.len()));
            clusters
        }
        Err(error) => {
            report.bad(
                "Kinds",
                format!("{error:#}"),
                "install capmaas (clusterctl init, or make deploy), or get the permission",
            );
            return Asked::default();
        }
    };
    match cluster.manager(system_namespace).await {
        Ok(Some(manager)) if manager["status"]["availableReplicas"].as_i64().unwrap_or(0) > 0 => {
            report.good("Manager", "it runs");
        }
        Ok(Some(_)) => {
            let look = format!("kubectl describe pod -n {system_namespace} -l control-plane=controller-manager");
            report.bad("Manager", "it is installed but does not run", format!("see: {look}"));
        }
        Ok(None) => report.bad(
            "Manager",
            format!("there is none in {system_namespace}"),
            "install it, or name its namespace with --system-namespace",
        ),
        Err(error) => report.bad("Manager", format!("{error:#}"), "it cannot be determined whether it runs"),
    }
    for object in &clusters {
        let name = format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        match condition(object, "CredentialsValid") {
            Some(valid) if valid["status"] == "True" => {
                report.good("Credentials", format!("{name}: MAAS accepts them"));
            }
            Some(valid) => report.bad(
                "Credentials",
                format!("{name}: {}", text(valid, "/message")),
                "correct them; no restart is needed",
            ),
            None => report.bad(
                "Credentials",
                format!("{name}: the manager has not reported yet"),
                "check that it runs and that a Cluster refers to it",
            ),
        }
    }
    let templates = cluster.ours("MaasMachineTemplate", all).await.unwrap_or_else(|error| {
        report.bad("Templates", format!("{error:#}"), "their images and pools are not checked");
        Vec::new()
    });
    Asked::of(&clusters, &templates)
}

/// Checks MAAS with the user's own key.
pub async fn check_maas(maas: &Client, asked: &Asked, report: &mut Report) {
    match maas.version().await {
        Ok(version) => report.good("MAAS", format!("version {} answers at {}", version.version, maas.endpoint())),
        Err(error) => {
            report.bad("MAAS", error.to_string(), error.advice());
            return;
        }
    }
    match maas.whoami().await {
        Ok(user) if user.is_superuser == Some(true) => {
            report.good("Your key", format!("belongs to the administrator {}", user.username));
        }
        Ok(user) => report.good("Your key", limited(&user.username)),
        Err(error) => {
            report.bad("Your key", error.to_string(), error.advice());
            return;
        }
    }
    if asked.identities {
        report.good("Identities", "some clusters use another MAAS; the following checks are about yours");
    }
    let zones = maas.zones().list().await.map(|all| all.into_iter().map(|zone| zone.name).collect());
    compare(report, "Zones", &asked.zones, zones, "create them in MAAS, or correct failureDomains");
    let pools = maas.pools().list().await.map(|all| all.into_iter().map(|pool| pool.name).collect());
    compare(report, "Pools", &asked.pools, pools, "create them in MAAS, or correct resourcePool");
    let domains = maas.domains().list().await.map(|all| all.into_iter().filter_map(|domain| domain.name).collect());
    compare(
        report,
        "DNS domains",
        &asked.domains,
        domains,
        "create them in MAAS; dnsDomain of a cluster cannot change",
    );
    let images = maas.boot_resources().list(None).await.map(|all| {
        let names = all.into_iter().filter_map(|image| image.name);
        // An uploaded image is requested by its name alone, or with the prefix "custom/".
        names.flat_map(|name| [format!("custom/{name}"), name]).collect()
    });
    compare(
        report,
        "Images",
        &asked.images,
        images,
        "import or upload them in MAAS, or correct image in a new template",
    );
    match maas.vm_hosts().list().await {
        Ok(all) => {
            let broken: Vec<String> = all
                .iter()
                .filter_map(|host| {
                    Some(format!("{}: {}", host.name.clone().unwrap_or_default(), hosts::trouble(host)?))
                })
                .collect();
            if broken.is_empty() {
                report.good("LXD hosts", format!("{}, all reached", all.len()));
            } else {
                report.bad("LXD hosts", broken.join("; "), "run vmhost-test on that node to see why");
            }
        }
        Err(error) => report.bad("LXD hosts", error.to_string(), error.advice()),
    }
}

/// A key without administrator rights is enough to look, and the user may not have another.
fn limited(user: &str) -> String {
    format!(
        "belongs to {user}, who is not an administrator: that is enough to read MAAS here. A manager with such a key can allocate, \
         deploy and release machines, but cannot change DNS records, tag machines, compose VMs or register VM hosts: give it the \
         key of an administrator"
    )
}

fn compare(
    report: &mut Report,
    subject: &str,
    asked: &BTreeSet<String>,
    there: maas_client::Result<BTreeSet<String>>,
    mend: &str,
) {
    match there {
        Ok(there) => {
            let missing: Vec<&str> = asked.difference(&there).map(String::as_str).collect();
            if asked.is_empty() {
                report.good(subject, "none is requested");
            } else if missing.is_empty() {
                let names: Vec<&str> = asked.iter().map(String::as_str).collect();
                report.good(subject, format!("MAAS has all that are requested: {}", names.join(", ")));
            } else {
                report.bad(subject, format!("MAAS does not have {}", missing.join(", ")), mend);
            }
        }
        Err(error) => report.bad(subject, error.to_string(), error.advice()),
    }
}

/// Compares the clock of MAAS, from its `Date` header, with this machine's.
pub fn judge_clock(report: &mut Report, date: Option<&str>, now: Timestamp) {
    let told = date.and_then(|date| jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date).ok());
    match told.map(|told| (told.as_second() - now.as_second()).abs()) {
        Some(skew) if skew <= SKEW_SECONDS => {
            report.good("Clock", format!("MAAS's differs by {skew} s from this machine's"));
        }
        Some(skew) => report.bad(
            "Clock",
            format!("MAAS's differs by {skew} s from this machine's"),
            "set both by NTP: MAAS refuses keys whose signature is minutes old or from the future",
        ),
        None => report.bad("Clock", "MAAS did not report the time", "a proxy may have removed the header Date"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_read_from_clusters_and_templates() {
        let cluster = json!({"spec": {"dnsDomain": "k8s.example", "failureDomains": ["az1", "az2"], "lxdConfig": {"resourcePool": "vms"}}});
        let template = json!({"spec": {"template": {"spec": {"image": "ubuntu/noble", "resourcePool": "big"}}}});
        let asked = Asked::of(&[cluster], &[template]);
        assert_eq!(asked.zones, BTreeSet::from(["az1".to_owned(), "az2".to_owned()]));
        assert_eq!(asked.pools, BTreeSet::from(["big".to_owned(), "vms".to_owned()]));
        assert_eq!((asked.images.len(), asked.domains.len(), asked.identities), (1, 1, false));
    }

    #[test]
    fn what_maas_does_not_have_is_named_with_what_to_do() {
        let mut report = Report::default();
        let asked = BTreeSet::from(["az1".to_owned(), "az9".to_owned()]);
        compare(&mut report, "Zones", &asked, Ok(BTreeSet::from(["az1".to_owned()])), "make them");
        assert!(!report.is_good());
        assert_eq!(report.render(), "[FAIL] Zones        MAAS does not have az9\n                    make them\n");
    }

    #[tokio::test]
    async fn a_limited_key_gets_one_verdict_and_a_sentence_of_what_it_can_do() {
        let maas = maas_sim::Simulator::new(maas_sim::Config::driven("consumer:token:secret".parse().unwrap()));
        let alice = json!([{"user": {"name": "alice", "admin": false, "key": "ca:ta:secret"}}]);
        maas.control().arrange(&serde_json::from_value::<Vec<_>>(alice).unwrap()).unwrap();
        let transport = maas_client::transport::in_process(maas.router(), 1 << 20);
        let client = Client::builder("http://sim.test/MAAS", "ca:ta:secret").transport(transport).build().unwrap();
        let mut report = Report::default();
        check_maas(&client, &Asked::default(), &mut report).await;
        assert!(report.is_good(), "{}", report.render());
        let of_key = report.findings.iter().filter(|finding| finding.subject == "Your key");
        assert_eq!(of_key.count(), 1, "{}", report.render());
        let text = report.render();
        for words in ["[ ok ] Your key     belongs to alice", "can allocate, deploy and release", "cannot change DNS"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn a_clock_that_is_minutes_off_is_told() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let judged = |date: Option<&str>| {
            let mut report = Report::default();
            judge_clock(&mut report, date, now);
            report.is_good()
        };
        assert!(judged(Some("Thu, 01 Jan 2026 00:01:00 GMT")));
        assert!(!judged(Some("Thu, 01 Jan 2026 00:09:00 GMT")));
        assert!(!judged(None));
    }
}
