//! Simulates the nodes of a cluster: a scheduler and kubelets without containers.
//!
//! Pods of Deployments and DaemonSets, and bare ones, run as processes of this machine with the command, arguments,
//! environment, volumes, probes, user and ServiceAccount of their manifest. The caller maps their images to programs.
//! What a real cluster checks is checked here too; what is not supported (an HTTPS probe, an unknown kind of volume)
//! keeps the Pod waiting with a message in its status and never runs it differently.

mod container;
mod environment;
mod pod;
mod probe;
mod root;
mod schedule;
mod status;
mod volumes;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{sync::watch, task::JoinSet};

use self::{container::Shared, pod::Wanted};
use crate::{
    Sandbox, Testbed,
    control_plane::new_client,
    error::{Doing, Error, Result},
};

/// How often Pods are listed. Cheap on a local API server, and nothing can be missed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What is about to be started in a container. A hook may change it, for instance so that two Pods on this machine do
/// not use the same port.
#[derive(Clone, Debug)]
pub struct ContainerPlan {
    /// The Pod's namespace. Changing this or one of the next three has no effect.
    pub namespace: String,
    pub pod: String,
    pub node: String,
    pub container: String,
    /// The arguments of the program: the rest of the manifest's command, then its args.
    pub args: Vec<String>,
    /// The environment variables from the manifest.
    pub env: Vec<(String, String)>,
    /// The ports that the program really listens on, keyed by the port in the manifest. Probes use them.
    pub moved_ports: BTreeMap<u16, u16>,
}

type Hook = Arc<dyn Fn(&mut ContainerPlan) + Send + Sync>;
type HostPaths = Arc<dyn Fn(&str) -> BTreeMap<String, PathBuf> + Send + Sync>;

/// What the nodes run.
#[derive(Clone, Default)]
pub struct NodePlayerOptions {
    images: Vec<(String, PathBuf)>,
    hook: Option<Hook>,
    host_paths: Option<HostPaths>,
    restart_back_off: Option<Duration>,
}

impl std::fmt::Debug for NodePlayerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodePlayerOptions").field("images", &self.images).finish_non_exhaustive()
    }
}

impl NodePlayerOptions {
    /// Maps images whose name starts with `prefix` to this program.
    #[must_use]
    pub fn image(mut self, prefix: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        self.images.push((prefix.into(), program.into()));
        self
    }

    /// Changes what is about to be started in a container.
    #[must_use]
    pub fn hook(mut self, hook: impl Fn(&mut ContainerPlan) + Send + Sync + 'static) -> Self {
        self.hook = Some(Arc::new(hook));
        self
    }

    /// Maps paths of a node, as used in hostPath volumes, to paths on this machine. Takes the node's name.
    #[must_use]
    pub fn host_paths(mut self, paths: impl Fn(&str) -> BTreeMap<String, PathBuf> + Send + Sync + 'static) -> Self {
        self.host_paths = Some(Arc::new(paths));
        self
    }

    /// The first delay between restarts of a container; it doubles each time. A kubelet's is 10 s, ours 1 s.
    #[must_use]
    pub fn restart_back_off(mut self, first: Duration) -> Self {
        self.restart_back_off = Some(first);
        self
    }
}

struct Context {
    client: Client,
    sandbox: Arc<Sandbox>,
    api_server: SocketAddr,
    images: Vec<(String, PathBuf)>,
    hook: Option<Hook>,
    host_paths: Option<HostPaths>,
    restart_back_off: Duration,
    board: Arc<Board>,
}

/// State shared between the caller's threads and the player's thread.
#[derive(Default)]
struct Board {
    nodes: Mutex<BTreeSet<String>>,
    pods: Mutex<HashMap<String, Arc<Shared>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    /// The program with the longest matching prefix.
    fn program_of(&self, image: &str) -> Option<&Path> {
        let matching = self.images.iter().filter(|(prefix, _)| image.starts_with(prefix.as_str()));
        matching.max_by_key(|(prefix, _)| prefix.len()).map(|(_, program)| program.as_path())
    }

    fn pod_dir(&self, pod: &Pod) -> PathBuf {
        self.sandbox.dir().join("pods").join(uid(pod))
    }

    fn node_dir(&self, node: &str) -> PathBuf {
        self.sandbox.dir().join("nodes").join(node)
    }

    fn register(&self, shared: &Arc<Shared>) {
        lock(&self.board.pods).insert(uid(&shared.pod).to_owned(), shared.clone());
    }

    fn forget(&self, shared: &Shared) {
        lock(&self.board.pods).remove(uid(&shared.pod));
    }
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

fn log_name(namespace: &str, pod: &str, container: &str) -> String {
    format!("pod.{namespace}.{pod}.{container}")
}

/// Nodes that run Pods as processes. Stopped on drop, with every process.
pub struct NodePlayer {
    config: kube::Config,
    sandbox: Arc<Sandbox>,
    board: Arc<Board>,
    /// Dropping it ends the thread.
    alive: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl NodePlayer {
    /// Starts on a testbed that has kube-controller-manager. There are no nodes until [`NodePlayer::add_node`].
    pub fn start(testbed: &Testbed, options: NodePlayerOptions) -> Result<Self> {
        for (image, program) in &options.images {
            if !program.is_file() {
                let what = format!("the program {} of the image {image}", program.display());
                return Err(Error::invalid(what, "is not there: build it first"));
            }
        }
        let (sandbox, config) = (testbed.sandbox().clone(), testbed.config().clone());
        let board = Arc::new(Board::default());
        let (alive, ended) = watch::channel(());
        // Its own thread and runtime: it keeps running whatever happens to the caller's.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .doing(|| "make a runtime for the node player".into())?;
        let client = {
            let _inside = runtime.enter();
            new_client(&config)?
        };
        let context = Arc::new(Context {
            client,
            sandbox: sandbox.clone(),
            api_server: testbed.api_server(),
            images: options.images,
            hook: options.hook,
            host_paths: options.host_paths,
            restart_back_off: options.restart_back_off.unwrap_or(Duration::from_secs(1)),
            board: board.clone(),
        });
        let thread = std::thread::Builder::new()
            .name("node-player".into())
            .spawn(move || runtime.block_on(run(context, ended)))
            .doing(|| "start the node player's thread".into())?;
        Ok(Self { config, sandbox, board, alive: Some(alive), thread: Some(thread) })
    }

    /// Adds a node with the usual labels, Ready, without taints.
    pub async fn add_node(&self, name: &str) -> Result<()> {
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            }},
        });
        self.add_node_object(serde_json::from_value(node).map_err(|e| Error::invalid("a Node", e))?).await
    }

    /// Adds the given node and sets its status to Ready.
    pub async fn add_node_object(&self, node: Node) -> Result<()> {
        let nodes: Api<Node> = Api::all(new_client(&self.config)?);
        let name = node.metadata.name.clone().unwrap_or_default();
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
        nodes.create(&PostParams::default(), &node).await.doing(|| format!("create the Node {name}"))?;
        let quantity = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
            "capacity": quantity,
            "allocatable": quantity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "played"}],
        }});
        let params = PatchParams::default();
        nodes.patch_status(&name, &params, &Patch::Merge(&status)).await.doing(|| format!("make {name} ready"))?;
        // Admission taints every new node as not ready; the controller that would remove the taint does not run here.
        let untainted = json!({"spec": {"taints": taints}});
        nodes.patch(&name, &params, &Patch::Merge(&untainted)).await.doing(|| format!("make {name} ready"))?;
        lock(&self.board.nodes).insert(name);
        Ok(())
    }

    /// Runs Pods on a node whose object someone else created.
    pub fn adopt_node(&self, name: &str) {
        lock(&self.board.nodes).insert(name.to_owned());
    }

    /// Powers a node off: its processes are killed at once. Its object and its Pods stay until someone deletes them.
    pub fn switch_off_node(&self, name: &str) {
        lock(&self.board.nodes).remove(name);
    }

    /// Powers a node off and deletes it: its processes are killed at once. Its Pods stay until they are deleted.
    pub async fn remove_node(&self, name: &str) -> Result<()> {
        lock(&self.board.nodes).remove(name);
        let nodes: Api<Node> = Api::all(new_client(&self.config)?);
        nodes.delete(name, &DeleteParams::default()).await.doing(|| format!("delete the Node {name}"))?;
        Ok(())
    }

    /// The output of all containers of a Pod, over all restarts. Stays readable after the Pod is deleted.
    pub fn logs(&self, namespace: &str, pod: &str) -> String {
        let prefix = log_name(namespace, pod, "");
        let mut files: Vec<PathBuf> = std::fs::read_dir(self.sandbox.logs())
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
            .map(|entry| entry.path())
            .collect();
        files.sort();
        let text = |path| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        files.into_iter().filter_map(|path| text(path).ok()).collect()
    }

    /// The process ids of a Pod's running containers.
    pub fn process_ids(&self, namespace: &str, pod: &str) -> Vec<u32> {
        let pods = lock(&self.board.pods);
        let named = |shared: &&Arc<Shared>| {
            let metadata = &shared.pod.metadata;
            metadata.namespace.as_deref() == Some(namespace) && metadata.name.as_deref() == Some(pod)
        };
        pods.values()
            .filter(named)
            .flat_map(|shared| lock(&shared.state).main.iter().filter_map(|c| c.process).collect::<Vec<_>>())
            .collect()
    }

    /// Kills every process at once, as a power cut of all nodes would. The objects stay as they are.
    pub async fn stop(self) {
        let _ = crate::blocking(move || {
            drop(self);
            Ok(())
        })
        .await;
    }
}

impl Drop for NodePlayer {
    fn drop(&mut self) {
        self.alive.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for NodePlayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodePlayer").field("nodes", &*lock(&self.board.nodes)).finish_non_exhaustive()
    }
}

/// The main loop: schedules pending Pods, starts scheduled ones, and notifies deleted ones.
async fn run(context: Arc<Context>, mut alive: watch::Receiver<()>) {
    let mut played: HashMap<String, (String, watch::Sender<Wanted>)> = HashMap::new();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            ended = alive.changed() => if ended.is_err() { break },
        }
        while tasks.try_join_next().is_some() {}
        let Ok(pods) = Api::<Pod>::all(context.client.clone()).list(&ListParams::default()).await else { continue };
        if let Err(error) = bind_waiting(&context, &pods.items).await {
            tracing::warn!(%error, "Pods could not be bound to nodes");
        }
        let nodes = lock(&context.board.nodes).clone();
        // A mirror Pod represents something that already runs; no kubelet starts it.
        let is_mirror = |pod: &&Pod| {
            pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key("kubernetes.io/config.mirror"))
        };
        for pod in pods.items.iter().filter(|pod| !is_mirror(pod)) {
            let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|n| nodes.contains(n))
            else {
                continue;
            };
            let finished =
                matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"));
            let wanted = wanted_of(pod);
            if let Some((_, sender)) = played.get(uid(pod)) {
                sender.send_if_modified(|known| std::mem::replace(known, wanted) != wanted);
            } else if !finished || wanted != Wanted::Run {
                // A finished Pod does not start again, but its deletion has to be handled.
                let (sender, receiver) = watch::channel(wanted);
                tasks.spawn(pod::play(context.clone(), pod.clone(), receiver));
                played.insert(uid(pod).to_owned(), (node, sender));
            }
        }
        played.retain(|played_uid, (node, wanted)| {
            let there = nodes.contains(node) && pods.items.iter().any(|pod| uid(pod) == played_uid);
            if !there {
                wanted.send_replace(Wanted::Gone);
            }
            there
        });
    }
    // Dropping the tasks drops their processes, which kills them. The board's entries reference the board.
    drop(tasks);
    lock(&context.board.pods).clear();
}

fn wanted_of(pod: &Pod) -> Wanted {
    if pod.metadata.deletion_timestamp.is_none() {
        return Wanted::Run;
    }
    let seconds = pod.metadata.deletion_grace_period_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Wanted::Stop(Duration::from_secs(seconds.unwrap_or(30)))
}

async fn bind_waiting(context: &Context, pods: &[Pod]) -> Result<()> {
    let is_waiting = |pod: &&Pod| {
        pod.metadata.deletion_timestamp.is_none() && pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none())
    };
    let waiting: Vec<&Pod> = pods.iter().filter(is_waiting).collect();
    if waiting.is_empty() {
        return Ok(());
    }
    let mut load: BTreeMap<String, usize> = BTreeMap::new();
    for node in pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()) {
        *load.entry(node).or_default() += 1;
    }
    let ours = lock(&context.board.nodes).clone();
    let nodes = Api::<Node>::all(context.client.clone()).list(&ListParams::default()).await;
    let mut nodes = nodes.doing(|| "list the Nodes".into())?.items;
    nodes.retain(|node| node.metadata.name.as_ref().is_some_and(|name| ours.contains(name)));
    for pod in waiting {
        let (namespace, name) =
            (pod.metadata.namespace.as_deref().unwrap_or("default"), pod.metadata.name.as_deref().unwrap_or_default());
        match schedule::choose_node(pod, &nodes, &load) {
            Ok(node) => {
                bind(context, namespace, name, &node).await?;
                *load.entry(node).or_default() += 1;
            }
            Err(message) => tracing::debug!(namespace, name, message, "a Pod finds no node"),
        }
    }
    Ok(())
}

async fn bind(context: &Context, namespace: &str, name: &str, node: &str) -> Result<()> {
    let body = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let request = http::Request::post(format!("/api/v1/namespaces/{namespace}/pods/{name}/binding"))
        .header("Content-Type", "application/json")
        .body(body.to_string().into_bytes())
        .map_err(|e| Error::invalid(format!("the binding of {namespace}/{name}"), e))?;
    match context.client.request_text(request).await {
        // Deleted or bound in the meantime; the next pass sees it.
        Err(kube::Error::Api(refused)) if refused.is_not_found() || refused.is_conflict() => Ok(()),
        answer => answer.map(drop).doing(|| format!("bind {namespace}/{name} to {node}")),
    }
}
