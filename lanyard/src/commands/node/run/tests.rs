use lanyard_node::{MemoryClasses, NoReporter};

use super::*;
use crate::commands::node::tests::parse;

/// A node that serves the kubelet, until one of its parts does not.
struct Scene {
    dir: tempfile::TempDir,
    server: NodeServer,
    clock: SharedClock,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display();
        let flags = [
            "--nodeid=n".to_owned(),
            format!("--endpoint=unix://{path}/csi.sock"),
            format!("--kubelet-dir={path}"),
            "--registration-dir=".to_owned(),
        ];
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let args = parse(&flags).unwrap();
        let settings = NodeSettings::resolve(&args).unwrap();
        let clock = SystemClock::shared();
        let sockets = SocketProviders::new(socket_settings(&args.providers), Arc::clone(&clock));
        let registry = ProviderRegistry::new(None, Arc::new(sockets), PodOverrides::Refused);
        let parts = PublisherParts {
            classes: Arc::new(MemoryClasses::new([])),
            provider: Arc::new(registry),
            reporter: Arc::new(NoReporter),
            clock: Arc::clone(&clock),
        };
        let publisher = publisher_settings(&settings, &Environment::default())
            .map(|it| Publisher::new(it, parts));
        let parts = NodeServerParts {
            publisher: publisher.unwrap(),
            provider: None,
            metrics: NodeMetrics::new(Arc::clone(&clock)),
            readiness: Readiness::default(),
            clock: Arc::clone(&clock),
        };
        Self { dir, server: NodeServer::new(settings.server, parts), clock }
    }

    async fn serve(self, beside: Beside) -> String {
        let drain = (Duration::from_mins(1), &self.clock);
        let signals = Signals::listen().unwrap();
        tokio::select! {
            ended = serve(self.server, signals, beside, drain) => ended.unwrap_err().to_string(),
            () = self.clock.sleep(Duration::from_mins(1)) => panic!("it goes on"),
        }
    }
}

#[tokio::test]
async fn the_process_ends_when_a_part_does_and_says_which() {
    let scene = Scene::new();
    let mut beside = Beside::default();
    beside.spawn("the rotation", beside.ended());
    let socket = scene.dir.path().join("csi.sock");
    let clock = Arc::clone(&scene.clock);
    beside.spawn_fallible("the metrics page", async move {
        while tokio::net::UnixStream::connect(&socket).await.is_err() {
            clock.sleep(Duration::from_millis(5)).await;
        }
        Err(io::Error::other("no more descriptors"))
    });
    let error = scene.serve(beside).await;
    assert!(error.contains("the metrics page could not go on: no more descriptors"), "{error}");
    assert!(error.contains("hint: nothing is lost"), "{error}");
}

#[tokio::test]
async fn a_port_that_the_process_before_still_has_is_waited_for() {
    let clock = SystemClock::shared();
    let before = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = ListenAddress::At(before.local_addr().unwrap());
    let a_while = async {
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        listening = Pages::listen(address, &clock) => panic!("{listening:?}"),
        () = a_while => {}
    }
    drop(before);
    assert!(Pages::listen(address, &clock).await.unwrap().is_some());
}
