//! The volumes of a Pod as folders of this machine.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::{
            ConfigMap, DownwardAPIVolumeFile, HostPathVolumeSource, KeyToPath, Pod, ProjectedVolumeSource, Secret,
            ServiceAccount, ServiceAccountTokenProjection, Volume,
        },
    },
};
use kube::{Api, Client, api::PostParams};

use super::environment::{Unconfigured, field_value};

/// The lifetime of a token when the manifest does not set it.
const TOKEN_SECONDS: i64 = 3600;

/// Creates a Pod's volumes and refreshes those that follow an object.
pub(super) struct Volumes {
    client: Client,
    dir: PathBuf,
    /// The folder for node paths that do not exist on this machine.
    node_dir: PathBuf,
    /// Node paths that are mapped to other paths on this machine.
    host_paths: BTreeMap<String, PathBuf>,
    /// Tokens and when to replace them, keyed by volume and path.
    tokens: BTreeMap<(String, String), (String, Instant)>,
}

type Files = BTreeMap<String, Vec<u8>>;

impl Volumes {
    pub(super) fn new(client: Client, dir: PathBuf, node_dir: PathBuf, host_paths: BTreeMap<String, PathBuf>) -> Self {
        Self { client, dir, node_dir, host_paths, tokens: BTreeMap::new() }
    }

    /// Creates or refreshes every volume. Returns the path of each on this machine.
    pub(super) async fn materialise(&mut self, pod: &Pod) -> Result<BTreeMap<String, PathBuf>, Unconfigured> {
        let mut paths = BTreeMap::new();
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        for volume in volumes {
            let path = self.volume(pod, volume).await.map_err(|why| format!("volume {:?}: {why}", volume.name))?;
            paths.insert(volume.name.clone(), path);
        }
        Ok(paths)
    }

    async fn volume(&mut self, pod: &Pod, volume: &Volume) -> Result<PathBuf, Unconfigured> {
        let dir = self.dir.join(&volume.name);
        if let Some(source) = &volume.host_path {
            return self.host_path(source);
        }
        if volume.empty_dir.is_some() {
            make_dir(&dir)?;
            return Ok(dir);
        }
        let files = if let Some(source) = &volume.config_map {
            self.config_map(pod, &source.name, source.items.as_deref(), source.optional).await?
        } else if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref().unwrap_or_default();
            self.secret(pod, name, source.items.as_deref(), source.optional).await?
        } else if let Some(source) = &volume.projected {
            self.projected(pod, &volume.name, source).await?
        } else if let Some(source) = &volume.downward_api {
            downward(pod, source.items.as_deref())?
        } else {
            return Err("the node player knows no volume of this kind".into());
        };
        publish(&dir, &files).map_err(|e| format!("cannot write {}: {e}", dir.display()))?;
        Ok(dir)
    }

    fn host_path(&self, source: &HostPathVolumeSource) -> Result<PathBuf, Unconfigured> {
        let kind = source.type_.as_deref().unwrap_or_default();
        let path = self.host_paths.get(&source.path).cloned().unwrap_or_else(|| PathBuf::from(&source.path));
        match (kind, fs::metadata(&path)) {
            ("Directory" | "DirectoryOrCreate", Ok(found)) if !found.is_dir() => {
                Err(format!("hostPath type check failed: {} is not a directory", source.path))
            }
            (_, Ok(_)) => Ok(path),
            // What a kubelet would create on its node is created in a folder that represents the node.
            ("" | "DirectoryOrCreate", Err(_)) => {
                let stand_in = self.node_dir.join(source.path.trim_start_matches('/'));
                make_dir(&stand_in)?;
                Ok(stand_in)
            }
            (kind, Err(error)) => Err(format!("hostPath type check failed: {} is not a {kind}: {error}", source.path)),
        }
    }

    async fn projected(
        &mut self,
        pod: &Pod,
        volume: &str,
        source: &ProjectedVolumeSource,
    ) -> Result<Files, Unconfigured> {
        let mut files = Files::new();
        for part in source.sources.iter().flatten() {
            if let Some(part) = &part.config_map {
                files.extend(self.config_map(pod, &part.name, part.items.as_deref(), part.optional).await?);
            }
            if let Some(part) = &part.secret {
                files.extend(self.secret(pod, &part.name, part.items.as_deref(), part.optional).await?);
            }
            if let Some(part) = &part.downward_api {
                files.extend(downward(pod, part.items.as_deref())?);
            }
            if let Some(part) = &part.service_account_token {
                files.insert(part.path.clone(), self.token(pod, volume, part).await?.into_bytes());
            }
        }
        Ok(files)
    }

    /// A token bound to its Pod, replaced after four fifths of its lifetime, as a kubelet does.
    async fn token(
        &mut self,
        pod: &Pod,
        volume: &str,
        source: &ServiceAccountTokenProjection,
    ) -> Result<String, Unconfigured> {
        let key = (volume.to_owned(), source.path.clone());
        if let Some((token, until)) = self.tokens.get(&key)
            && Instant::now() < *until
        {
            return Ok(token.clone());
        }
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
        let seconds = source.expiration_seconds.unwrap_or(TOKEN_SECONDS);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: source.audience.iter().cloned().collect(),
                expiration_seconds: Some(seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: pod.metadata.name.clone(),
                    uid: pod.metadata.uid.clone(),
                }),
            },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace(pod));
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
        let token = answer
            .map_err(|e| format!("cannot get a token of the ServiceAccount {account}: {e}"))?
            .status
            .map(|status| status.token)
            .ok_or("the API server answered without a token")?;
        let life = Duration::from_secs(u64::try_from(seconds).unwrap_or(0)) * 4 / 5;
        self.tokens.insert(key, (token.clone(), Instant::now() + life));
        Ok(token)
    }

    async fn config_map(
        &self,
        pod: &Pod,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
    ) -> Result<Files, Unconfigured> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace(pod));
        let Some(found) = api.get_opt(name).await.map_err(|e| format!("cannot read configmap {name:?}: {e}"))? else {
            return absent("configmap", name, optional);
        };
        let text = found.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes()));
        let binary = found.binary_data.unwrap_or_default().into_iter().map(|(key, ByteString(value))| (key, value));
        pick(text.chain(binary).collect(), items, optional)
    }

    async fn secret(
        &self,
        pod: &Pod,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
    ) -> Result<Files, Unconfigured> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace(pod));
        let Some(found) = api.get_opt(name).await.map_err(|e| format!("cannot read secret {name:?}: {e}"))? else {
            return absent("secret", name, optional);
        };
        let data = found.data.unwrap_or_default().into_iter().map(|(key, ByteString(value))| (key, value));
        pick(data.collect(), items, optional)
    }
}

fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

fn absent(kind: &str, name: &str, optional: Option<bool>) -> Result<Files, Unconfigured> {
    if optional == Some(true) { Ok(Files::new()) } else { Err(format!("{kind} {name:?} not found")) }
}

fn pick(mut all: Files, items: Option<&[KeyToPath]>, optional: Option<bool>) -> Result<Files, Unconfigured> {
    let Some(items) = items else { return Ok(all) };
    let mut files = Files::new();
    for item in items {
        match all.remove(&item.key) {
            Some(content) => _ = files.insert(item.path.clone(), content),
            None if optional == Some(true) => {}
            None => return Err(format!("references non-existent key {:?}", item.key)),
        }
    }
    Ok(files)
}

fn downward(pod: &Pod, items: Option<&[DownwardAPIVolumeFile]>) -> Result<Files, Unconfigured> {
    let mut files = Files::new();
    for item in items.unwrap_or_default() {
        let field = item.field_ref.as_ref().ok_or("the node player knows no resourceFieldRef")?;
        files.insert(item.path.clone(), field_value(pod, &field.field_path)?.into_bytes());
    }
    Ok(files)
}

fn make_dir(dir: &Path) -> Result<(), Unconfigured> {
    let made = fs::create_dir_all(dir).and_then(|()| fs::set_permissions(dir, fs::Permissions::from_mode(0o777)));
    made.map_err(|e| format!("cannot make {}: {e}", dir.display()))
}

/// Publishes a new set of files atomically, as a kubelet does: each name is a link through `..data`, which one rename
/// switches. Does nothing if nothing changed.
fn publish(dir: &Path, files: &Files) -> std::io::Result<()> {
    let unchanged = |(name, content): (&String, &Vec<u8>)| fs::read(dir.join(name)).is_ok_and(|old| old == *content);
    let shown = fs::read_dir(dir).map_or(0, |entries| {
        entries.flatten().filter(|entry| !entry.file_name().to_string_lossy().starts_with("..")).count()
    });
    if dir.exists() && shown == top_level(files).len() && files.iter().all(unchanged) {
        return Ok(());
    }
    fs::create_dir_all(dir)?;
    let generation = format!("..{:016x}", rand::random::<u64>());
    let new = dir.join(&generation);
    fs::create_dir(&new)?;
    for (name, content) in files {
        let path = new.join(name);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(&path, content)?;
    }
    let old = fs::read_link(dir.join("..data")).ok();
    let next = dir.join("..data_tmp");
    symlink(&generation, &next)?;
    fs::rename(&next, dir.join("..data"))?;
    let wanted = top_level(files);
    for name in &wanted {
        let link = dir.join(name);
        if !link.is_symlink() {
            symlink(Path::new("..data").join(name), link)?;
        }
    }
    for entry in fs::read_dir(dir)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !wanted.contains(&name) {
            fs::remove_file(entry.path())?;
        }
    }
    old.map_or(Ok(()), |old| fs::remove_dir_all(dir.join(old)))
}

fn top_level(files: &Files) -> std::collections::BTreeSet<String> {
    files.keys().filter_map(|name| name.split('/').next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(pairs: &[(&str, &str)]) -> Files {
        pairs.iter().map(|(name, content)| ((*name).to_owned(), content.as_bytes().to_vec())).collect()
    }

    #[test]
    fn a_change_of_files_shows_all_at_once_and_removes_what_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("v");
        publish(&volume, &files(&[("a", "1"), ("deep/b", "2")])).unwrap();
        assert_eq!(fs::read_to_string(volume.join("deep/b")).unwrap(), "2");
        let generation = fs::read_link(volume.join("..data")).unwrap();
        publish(&volume, &files(&[("a", "1"), ("deep/b", "2")])).unwrap();
        assert_eq!(fs::read_link(volume.join("..data")).unwrap(), generation, "nothing changed");
        publish(&volume, &files(&[("a", "3")])).unwrap();
        assert_eq!(fs::read_to_string(volume.join("a")).unwrap(), "3");
        assert!(!volume.join("deep").exists() && !volume.join(generation).exists());
    }

    #[test]
    fn a_key_that_is_missing_is_told_unless_it_is_optional() {
        let item = KeyToPath { key: "b".into(), path: "p".into(), mode: None };
        let all = files(&[("a", "1")]);
        assert!(pick(all.clone(), Some(std::slice::from_ref(&item)), None).unwrap_err().contains("\"b\""));
        assert!(pick(all, Some(&[item]), Some(true)).unwrap().is_empty());
    }
}
