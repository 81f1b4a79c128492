//! Volumes of pods without a kubelet: the CSI calls for them, and the files in their directories.
//!
//! They test single calls. Suites that depend on the kubelet's cadence, back-off or cleanup run a real one.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lanyard_grpc::csi;
use lanyard_grpc::csi::node_client::NodeClient;
use rustix::mount::{UnmountFlags, unmount};
use serde_json::{Value, json};
use thiserror::Error;
use tonic::{Request, Status};

/// The kubelet's deadline for a call.
const CALL_DEADLINE: Duration = Duration::from_mins(2);

/// The name of a Node object without a kubelet. Drivers act for this node, and no kubelet runs its pods.
pub(crate) const UNMANAGED_NODE_NAME: &str = "elsewhere";

/// A CSI call returned an error.
#[derive(Debug, Error)]
#[error("{call} was answered {}: {}", .status.code(), .status.message())]
pub(crate) struct CsiCallError {
    call: &'static str,
    pub(crate) status: Box<Status>,
}

/// A volume of a pod.
#[derive(Debug, Clone)]
pub(crate) struct TestVolume {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) class: String,
    /// The content of the Secret that `nodePublishSecretRef` names.
    pub(crate) secrets: BTreeMap<String, String>,
    /// ServiceAccount tokens by audience, in the kubelet's format.
    pub(crate) tokens: Option<Value>,
    pods_directory: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeFile {
    pub(crate) mode: u32,
    pub(crate) content: Vec<u8>,
}

impl TestVolume {
    /// A volume below the kubelet's directory, for a pod and a class in one namespace.
    pub(crate) fn new(kubelet: &Path, namespace: &str, pod: &str, class: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            uid: uuid::Uuid::new_v4().to_string(),
            class: class.to_owned(),
            secrets: BTreeMap::new(),
            tokens: None,
            pods_directory: kubelet.join("pods"),
        }
    }

    /// The target path of the volume.
    pub(crate) fn target_path(&self) -> PathBuf {
        self.pods_directory
            .join(&self.uid)
            .join("volumes")
            .join("kubernetes.io~csi")
            .join("secrets")
            .join("mount")
    }

    /// The volume id. The kubelet uses a digest of pod and volume instead.
    pub(crate) fn volume_id(&self) -> String {
        format!("csi-{}", self.uid.replace('-', ""))
    }

    /// The name of its `SecretProviderClassPodStatus`.
    pub(crate) fn pod_status_name(&self) -> String {
        format!("{}-{}-{}", self.pod, self.namespace, self.class)
    }

    /// The manifest of its pod, on the node without a kubelet.
    pub(crate) fn pod_object(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": self.pod, "namespace": self.namespace },
            "spec": {
                "nodeName": UNMANAGED_NODE_NAME,
                "containers": [{ "name": "main", "image": "none" }],
                "volumes": [{
                    "name": "secrets",
                    "csi": {
                        "driver": "secrets-store.csi.k8s.io",
                        "readOnly": true,
                        "volumeAttributes": { "secretProviderClass": self.class },
                    },
                }],
            },
        })
    }

    fn publish_request(&self) -> csi::NodePublishVolumeRequest {
        let mut context = BTreeMap::from([
            ("secretProviderClass".to_owned(), self.class.clone()),
            ("csi.storage.k8s.io/pod.name".to_owned(), self.pod.clone()),
            ("csi.storage.k8s.io/pod.namespace".to_owned(), self.namespace.clone()),
            ("csi.storage.k8s.io/pod.uid".to_owned(), self.uid.clone()),
            ("csi.storage.k8s.io/serviceAccount.name".to_owned(), "default".to_owned()),
            ("csi.storage.k8s.io/ephemeral".to_owned(), "true".to_owned()),
        ]);
        if let Some(tokens) = &self.tokens {
            let key = "csi.storage.k8s.io/serviceAccount.tokens".to_owned();
            context.insert(key, tokens.to_string());
        }
        let mut request = csi::NodePublishVolumeRequest::default();
        request.volume_id = self.volume_id();
        request.target_path = self.target_path().display().to_string();
        request.readonly = true;
        request.secrets = self.secrets.clone();
        request.volume_context = context;
        request.volume_capability = Some(volume_capability());
        request
    }

    /// Reads the files as a pod sees them: path, permissions and content, with links resolved.
    pub(crate) fn read_files(&self) -> std::io::Result<BTreeMap<String, VolumeFile>> {
        let mut files = BTreeMap::new();
        collect_files(&self.target_path(), "", &mut files)?;
        Ok(files)
    }

    /// Removes mounts and files that a driver left behind.
    pub(crate) fn remove_directory(&self) {
        // Usually nothing is left. All stacked mounts are removed.
        while unmount(self.target_path(), UnmountFlags::DETACH).is_ok() {}
        drop(fs::remove_dir_all(self.pods_directory.join(&self.uid)));
    }
}

fn volume_capability() -> csi::VolumeCapability {
    let mount = csi::volume_capability::MountVolume::default();
    csi::VolumeCapability {
        access_mode: Some(csi::volume_capability::AccessMode {
            mode: csi::volume_capability::access_mode::Mode::SingleNodeWriter.into(),
        }),
        access_type: Some(csi::volume_capability::AccessType::Mount(mount)),
    }
}

/// Skips entries that begin with two dots, which belong to the atomic writer.
fn collect_files(
    directory: &Path,
    prefix: &str,
    files: &mut BTreeMap<String, VolumeFile>,
) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("..") {
            continue;
        }
        let (path, name) = (entry.path(), format!("{prefix}{name}"));
        let metadata = fs::metadata(&path)?;
        if metadata.is_dir() {
            collect_files(&path, &format!("{name}/"), files)?;
        } else {
            let (mode, content) = (metadata.permissions().mode() & 0o7777, fs::read(&path)?);
            files.insert(name, VolumeFile { mode, content });
        }
    }
    Ok(())
}

/// A client of a CSI driver.
#[derive(Debug, Clone)]
pub(crate) struct CsiDriverClient(PathBuf);

impl CsiDriverClient {
    pub(crate) fn new(socket: &Path) -> Self {
        Self(socket.to_path_buf())
    }

    /// The path of the socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.0
    }

    /// Opens a new connection, as the kubelet does for every call.
    fn client(&self) -> NodeClient<tonic::transport::Channel> {
        NodeClient::new(lanyard_grpc::channel_to_socket(&self.0))
    }

    /// Whether the driver responds.
    pub(crate) async fn is_answering(&self) -> bool {
        self.0.exists()
            && self.client().node_get_info(csi::NodeGetInfoRequest::default()).await.is_ok()
    }

    /// Publishes a volume, after a call for the capabilities as the kubelet makes it.
    pub(crate) async fn publish(&self, volume: &TestVolume) -> Result<(), CsiCallError> {
        let asked = csi::NodeGetCapabilitiesRequest::default();
        self.client()
            .node_get_capabilities(asked)
            .await
            .map_err(call_error("NodeGetCapabilities"))?;
        if let Some(parent) = volume.target_path().parent() {
            // If this fails, the driver reports the missing directory.
            fs::create_dir_all(parent).unwrap_or_default();
        }
        let mut request = Request::new(volume.publish_request());
        request.set_timeout(CALL_DEADLINE);
        let answer = self.client().node_publish_volume(request).await;
        answer.map(drop).map_err(call_error("NodePublishVolume"))
    }

    /// Unpublishes a volume.
    pub(crate) async fn unpublish(&self, volume: &TestVolume) -> Result<(), CsiCallError> {
        let (volume_id, target_path) =
            (volume.volume_id(), volume.target_path().display().to_string());
        let mut request = Request::new(csi::NodeUnpublishVolumeRequest { volume_id, target_path });
        request.set_timeout(CALL_DEADLINE);
        let answer = self.client().node_unpublish_volume(request).await;
        answer.map(drop).map_err(call_error("NodeUnpublishVolume"))
    }
}

fn call_error(call: &'static str) -> impl FnOnce(Status) -> CsiCallError {
    move |status| CsiCallError { call, status: Box::new(status) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn read_files_follows_links_and_skips_internal_entries() {
        let kubelet = tempfile::tempdir().expect("a directory");
        let volume = TestVolume::new(kubelet.path(), "default", "web", "secrets");
        let target = volume.target_path();
        fs::create_dir_all(target.join("..1").join("tls")).expect("it is made");
        fs::write(target.join("..1/tls/key"), "k").expect("it is written");
        let mode = fs::Permissions::from_mode(0o640);
        fs::set_permissions(target.join("..1/tls/key"), mode).expect("it is ours");
        symlink("..1", target.join("..data")).expect("it is linked");
        symlink("..data/tls", target.join("tls")).expect("it is linked");
        let observed = volume.read_files().expect("it can be read");
        let key = VolumeFile { mode: 0o640, content: b"k".to_vec() };
        assert_eq!(observed, BTreeMap::from([("tls/key".to_owned(), key)]));
        volume.remove_directory();
        assert!(!target.exists());
    }

    #[tokio::test]
    async fn a_socket_without_a_driver_does_not_answer() {
        assert!(!CsiDriverClient::new(Path::new("/nowhere/csi.sock")).is_answering().await);
    }
}
