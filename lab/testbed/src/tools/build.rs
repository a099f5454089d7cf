//! Builds a tool set through the Go module proxy and renders Cluster API's components.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

use serde_json::Value;

use super::{Recipe, ToolSet, Tools, cache, progress::Progress};
use crate::{
    error::{Doing, Error, Result, create_dir, read_file, write_file},
    process::{run, tail},
    versions::{CapiVersion, KubernetesVersion},
};

/// The providers whose manifests are rendered, and the folder of each in the module.
const PROVIDERS: [(&str, &str); 3] = [
    ("core", "core/config/default"),
    ("bootstrap", "bootstrap/kubeadm/config/default"),
    ("control-plane", "controlplane/kubeadm/config/default"),
];
/// Before 1.14 core's manifests were at the root of the module.
const OLD_CORE_MANIFESTS: &str = "config/default";
/// The program of a Pod's sandbox container. It is part of Kubernetes, in C.
const PAUSE: &str = "pause";
const PAUSE_SOURCE: &str = "build/pause/linux/pause.c";
/// Written last, by rename: its presence marks the components as complete.
const COMPONENTS_COMPLETE: &str = "metadata.yaml";

pub(super) fn is_there(set: ToolSet) -> Result<bool> {
    let recipe = set.recipe();
    Ok(is_complete(set, &recipe, &place(&recipe)?))
}

fn place(recipe: &Recipe) -> Result<Tools> {
    let root = cache::cache_root()?.join("tools");
    let revision = if recipe.revision > 1 { format!("-r{}", recipe.revision) } else { String::new() };
    Ok(Tools { dir: root.join(format!("{}-{}{revision}", recipe.name, recipe.version)) })
}

pub(super) fn ensure(set: ToolSet) -> Result<Tools> {
    let recipe = set.recipe();
    let tools = place(&recipe)?;
    if is_complete(set, &recipe, &tools) {
        return Ok(tools);
    }
    create_dir(&tools.dir)?;
    let _lock = cache::lock(&tools.dir.join(".lock"), &set.to_string())?;
    if is_complete(set, &recipe, &tools) {
        return Ok(tools);
    }
    let module = tools.dir.join(".module");
    create_dir(&module)?;
    write_file(&module.join("go.mod"), recipe.go_mod)?;
    write_file(&module.join("go.sum"), recipe.go_sum)?;
    if let Some(main_go) = recipe.main_go {
        write_file(&module.join("main.go"), main_go)?;
    }
    for (program, package) in recipe.programs {
        if !tools.program(program).exists() {
            build(&recipe, &tools, &module, program, package)?;
        }
    }
    match set {
        ToolSet::ClusterApi(version) => render_components(version, &tools, &module)?,
        ToolSet::Node(_) => build_pause(&tools, &module)?,
        _ => {}
    }
    fs::remove_dir_all(&module).doing(|| format!("remove {}", module.display()))?;
    Ok(tools)
}

fn is_complete(set: ToolSet, recipe: &Recipe, tools: &Tools) -> bool {
    recipe.programs.iter().all(|(program, _)| tools.program(program).exists())
        && (!matches!(set, ToolSet::ClusterApi(_)) || tools.metadata_yaml().exists())
        && (!matches!(set, ToolSet::Node(_)) || tools.program(PAUSE).exists())
}

fn build(recipe: &Recipe, tools: &Tools, module: &Path, program: &str, package: &str) -> Result<()> {
    let what = format!("{} {} {program}", recipe.name, recipe.version);
    let partial = tools.dir.join(format!(".{program}.partial"));
    let mut command = go(module);
    // The linker drops debug information (-w), so the compiler need not make it: a twelfth of the time.
    command.args(["build", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", &linker_flags(recipe)]);
    command.arg("-o").arg(&partial).arg(package);
    run_go(command, &format!("building {what}"), &module.join("build.log"))?;
    let finished = tools.program(program);
    fs::rename(&partial, &finished).doing(|| format!("put {} in its place", finished.display()))
}

/// Kubernetes programs report v0.0.0 by default, and Cluster API refuses such a server.
fn linker_flags(recipe: &Recipe) -> String {
    let mut flags = "-s -w".to_owned();
    if recipe.name.starts_with("kubernetes") {
        let version = recipe.version;
        let minor = version.split('.').nth(1).unwrap_or_default();
        for (variable, value) in [
            ("k8s.io/component-base/version.gitVersion", version),
            ("k8s.io/component-base/version.gitMajor", "1"),
            ("k8s.io/component-base/version.gitMinor", minor),
            ("k8s.io/client-go/pkg/version.gitVersion", version),
        ] {
            let _ = write!(flags, " -X {variable}={value}");
        }
    }
    flags
}

fn go(module: &Path) -> Command {
    let mut command = Command::new("go");
    command.current_dir(module).env("CGO_ENABLED", "0").env("GOFLAGS", "").env("GOWORK", "off");
    command
}

/// Runs a go command to its end and shows progress.
fn run_go(mut command: Command, what: &str, log: &Path) -> Result<()> {
    let file = File::create(log).doing(|| format!("write {}", log.display()))?;
    let errors = file.try_clone().doing(|| format!("write {}", log.display()))?;
    let mut child = match command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn() {
        Ok(child) => child,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(go_is_missing(what)),
        Err(e) => return Err(e).doing(|| "start go".into()),
    };
    let mut progress = Progress::start(what.to_owned());
    loop {
        match child.try_wait().doing(|| "wait for go".into())? {
            Some(status) if status.success() => break,
            Some(status) => return Err(go_failed(what, &status.to_string(), &read_file(log)?)),
            None => {
                progress.tick();
                sleep(Duration::from_millis(200));
            }
        }
    }
    progress.done();
    Ok(())
}

fn go_is_missing(what: &str) -> Error {
    Error::Missing(format!(
        "go is not in PATH, which stopped {what}: install Go 1.26 or newer, or point CAPMAAS_CACHE at a cache that \
         `testbed tools` filled"
    ))
}

fn go_failed(what: &str, status: &str, log: &str) -> Error {
    const UNREACHABLE: [&str; 7] = [
        "dial tcp",
        "proxyconnect",
        "no such host",
        "module lookup disabled",
        "i/o timeout",
        "TLS handshake timeout",
        "connection refused",
    ];
    if UNREACHABLE.iter().any(|sign| log.contains(sign)) {
        let proxy = std::env::var("GOPROXY").unwrap_or_else(|_| "Go's default".into());
        let reason = log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        return Error::Missing(format!(
            "the Go module proxy (GOPROXY: {proxy}) cannot be reached, which stopped {what}: check the network, or set \
             GOPROXY to one that can. Go said: {reason}"
        ));
    }
    Error::Program { name: "go".into(), what: format!("failed ({status}) while {what}"), tail: tail(log) }
}

/// `kubectl kustomize` of each provider's own manifests, stored as YAML for clusterctl and as JSON for us.
fn render_components(version: CapiVersion, tools: &Tools, module: &Path) -> Result<()> {
    let kubectl = ToolSet::Kubernetes(KubernetesVersion::V1_36).ensure()?.program("kubectl");
    let source =
        source(module, "sigs.k8s.io/cluster-api", &format!("fetching the manifests of Cluster API {version}"))?;
    create_dir(&tools.dir.join("components"))?;
    for (provider, folder) in PROVIDERS {
        let folder = if provider == "core" && version < CapiVersion::V1_14 { OLD_CORE_MANIFESTS } else { folder };
        let mut kustomize = Command::new(&kubectl);
        kustomize.arg("kustomize").arg(source.join(folder));
        let yaml = run(kustomize)?;
        let objects: Vec<Value> = serde_saphyr::from_multiple(&yaml)
            .map_err(|e| Error::invalid(format!("the {provider} components of Cluster API {version}"), e))?;
        write_file(&tools.components_yaml(provider), &yaml)?;
        write_file(&tools.components_json(provider), Value::from(objects).to_string())?;
    }
    let partial = tools.dir.join("components/.metadata.partial");
    write_file(&partial, read_file(&source.join(COMPONENTS_COMPLETE))?)?;
    fs::rename(&partial, tools.metadata_yaml()).doing(|| "finish the components".into())
}

/// The source folder of a required module. The binaries may be cached without the module; this then downloads it.
fn source(module: &Path, required: &str, what: &str) -> Result<PathBuf> {
    run_go(with_args(go(module), &["mod", "download", required]), what, &module.join("download.log"))?;
    let listed = run(with_args(go(module), &["list", "-m", "-f", "{{.Dir}}", required]))?;
    Ok(PathBuf::from(listed.trim()))
}

fn build_pause(tools: &Tools, module: &Path) -> Result<()> {
    // For its C compiler, which links statically.
    super::ensure_packages(super::NODE_PACKAGES)?;
    let source = source(module, "k8s.io/kubernetes", "fetching the source of pause")?.join(PAUSE_SOURCE);
    let partial = tools.dir.join(".pause.partial");
    let mut compile = Command::new("musl-gcc");
    compile.args(["-Os", "-static", "-o"]).arg(&partial).arg(source);
    run(compile)?;
    fs::rename(&partial, tools.program(PAUSE)).doing(|| "finish pause".into())
}

fn with_args(mut command: Command, args: &[&str]) -> Command {
    command.args(args);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_proxy_is_told_from_a_broken_build() {
        let network =
            go_failed("building x", "exit status: 1", "go: k8s.io/api: Get \"https://p\": dial tcp: lookup p");
        assert!(network.to_string().starts_with("the Go module proxy"), "{network}");
        let build = go_failed("building x", "exit status: 1", "main.go:1: undefined: y");
        assert!(build.to_string().contains("undefined: y"), "{build}");
    }

    #[test]
    fn the_pinned_modules_are_those_of_the_named_versions() {
        let older = ToolSet::Kubernetes(KubernetesVersion::V1_36_3);
        let nodes = [KubernetesVersion::V1_36_3, KubernetesVersion::V1_36].map(ToolSet::Node);
        let theirs = nodes.into_iter().chain([older, ToolSet::NodeEtcd, ToolSet::CoreDns]);
        for set in ToolSet::all().into_iter().chain(theirs) {
            let recipe = set.recipe();
            let module = match set {
                ToolSet::Etcd | ToolSet::NodeEtcd => "go.etcd.io/etcd/server/v3",
                ToolSet::CoreDns => "github.com/coredns/coredns",
                ToolSet::Kubernetes(_) | ToolSet::Node(_) => "k8s.io/kubernetes",
                ToolSet::ClusterApi(_) => "sigs.k8s.io/cluster-api",
                ToolSet::Helm => "helm.sh/helm/v3",
                ToolSet::Cosign => "github.com/sigstore/cosign/v2",
                ToolSet::GoMaasClient => "github.com/canonical/gomaasclient",
            };
            let pin = format!("{module} {}", recipe.version);
            let pinned = recipe.go_mod.lines().any(|line| line.split("//").next().unwrap().trim().ends_with(&pin));
            assert!(pinned, "go.mod of {set} does not require {pin}");
        }
    }

    #[test]
    fn kubernetes_programs_know_their_version() {
        let flags = linker_flags(&ToolSet::Kubernetes(KubernetesVersion::V1_29).recipe());
        assert!(flags.contains("component-base/version.gitVersion=v1.29.15"), "{flags}");
        assert!(flags.contains("version.gitMinor=29"), "{flags}");
    }
}
