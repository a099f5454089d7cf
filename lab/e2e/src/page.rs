//! `kubectl maas ui`, run as a user runs it.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use capmaas_testbed::Testbed;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::maas::API_KEY;
use crate::program;

/// A running page. Stopped on drop.
pub struct Page {
    _process: Child,
    /// Its address, with the token.
    pub url: String,
}

impl Page {
    /// Serves the objects of a cluster, and of a MAAS if one is given.
    pub async fn start(testbed: &Testbed, maas: Option<&str>, arguments: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(program("kubectl-maas")?);
        command.args(["ui", "--no-browser"]).args(arguments).env("KUBECONFIG", testbed.kubeconfig_path());
        command.env_remove("MAAS_ENDPOINT").env_remove("MAAS_API_KEY");
        if let Some(endpoint) = maas {
            command.env("MAAS_ENDPOINT", endpoint).env("MAAS_API_KEY", API_KEY);
        }
        let mut process = command.stdout(std::process::Stdio::piped()).kill_on_drop(true).spawn()?;
        let printed = process.stdout.take().context("it prints nothing")?;
        let url = BufReader::new(printed).lines().next_line().await?.context("it does not print its address")?;
        ensure!(url.starts_with("http://127.0.0.1:") && url.contains("/?token="), "{url}");
        Ok(Self { _process: process, url })
    }

    pub fn origin(&self) -> &str {
        self.url.split_once("/?").map_or(&self.url, |(origin, _)| origin)
    }

    /// The token that every request must carry.
    pub fn token(&self) -> &str {
        self.url.split_once("token=").map_or("", |(_, token)| token)
    }

    /// Everything that it shows now, keyed by for example `machine/default/m1`.
    pub async fn shown(&self) -> anyhow::Result<BTreeMap<String, Value>> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let request = client.get(format!("{}/live", self.origin())).bearer_auth(self.token());
        let mut answer = request.send().await?.error_for_status()?;
        let mut text = Vec::new();
        // The first event contains everything and ends with an empty line.
        while !text.ends_with(b"\n\n") {
            text.extend(answer.chunk().await?.context("it ends too early")?);
        }
        let text = String::from_utf8(text)?;
        let first = text.lines().find_map(|line| line.strip_prefix("data:")).context("it tells nothing")?;
        let told: Value = serde_json::from_str(first)?;
        Ok(serde_json::from_value(told["set"].clone())?)
    }
}
