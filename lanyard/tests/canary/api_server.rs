//! A fake API server with one pod, over HTTP on loopback, to which `lanyard canary` writes its annotation.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

/// The annotations of the pod, and the received requests.
#[derive(Debug, Default)]
struct FakePodState {
    annotations: serde_json::Map<String, Value>,
    requests: Vec<String>,
}

/// The server. Its thread runs until the process ends.
pub(crate) struct FakePodApiServer {
    pod: Arc<Mutex<FakePodState>>,
    pub(crate) kubeconfig: PathBuf,
}

impl FakePodApiServer {
    pub(crate) fn start(scratch: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let kubeconfig = scratch.join("kubeconfig");
        let content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "one",
            "clusters": [{"name": "one", "cluster": {
                "server": format!("http://{}", listener.local_addr().unwrap()),
            }}],
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
            "users": [{"name": "one", "user": {}}],
        });
        std::fs::write(&kubeconfig, content.to_string()).unwrap();
        let pod = Arc::new(Mutex::new(FakePodState::default()));
        let served = Arc::clone(&pod);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let served = Arc::clone(&served);
                std::thread::spawn(move || serve_connection(&stream.unwrap(), &served));
            }
        });
        Self { pod, kubeconfig }
    }

    /// The facts in the annotation.
    pub(crate) fn read_facts(&self) -> Option<Value> {
        let pod = self.pod.lock();
        let text = pod.annotations.get("lanyard.dev/canary-facts")?.as_str()?.to_owned();
        serde_json::from_str(&text).unwrap()
    }

    /// The methods and paths of the received requests, in order.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.pod.lock().requests.clone()
    }
}

/// Serves the requests of one connection sequentially.
fn serve_connection(stream: &TcpStream, pod: &Mutex<FakePodState>) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if reader.read_line(&mut first).unwrap_or_default() == 0 {
            return;
        }
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).unwrap();
            if header.trim().is_empty() {
                break;
            }
            let header = header.to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let answer = handle_request(&first, &body, pod).to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
        let reply = format!("{head} {}\r\n\r\n{answer}", answer.len());
        let mut writer = stream;
        if writer.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

fn handle_request(first: &str, body: &[u8], pod: &Mutex<FakePodState>) -> Value {
    let mut words = first.split_whitespace();
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let path = target.split('?').next().unwrap();
    let mut pod = pod.lock();
    pod.requests.push(format!("{method} {path}"));
    if method == "PATCH" {
        let patch: Value = serde_json::from_slice(body).unwrap();
        let wanted = patch["metadata"]["annotations"].as_object().unwrap().clone();
        pod.annotations.extend(wanted);
    }
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"name": "canary-1", "namespace": "clusters-harbour",
            "annotations": pod.annotations},
    })
}
