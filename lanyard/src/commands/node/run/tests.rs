use lanyard_node::NoopReporter;
use lanyard_provider::InMemoryClassSource;

use super::*;
use crate::commands::node::tests::parse_node_args;

/// A node plugin server that runs until one of its tasks fails.
struct NodeServeFixture {
    dir: tempfile::TempDir,
    server: NodePluginServer,
    clock: SharedClock,
}

impl NodeServeFixture {
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
        let args = parse_node_args(&flags).unwrap();
        let settings = NodeSettings::resolve(&args).unwrap();
        let clock = SystemClock::shared();
        let sockets = SocketProviders::new(socket_settings(&args.providers), Arc::clone(&clock));
        let registry = ProviderRegistry::new(None, Arc::new(sockets), PodOverrides::Refused);
        let parts = PublisherParts {
            classes: Arc::new(InMemoryClassSource::new([])),
            provider: Arc::new(registry),
            reporter: Arc::new(NoopReporter),
            clock: Arc::clone(&clock),
        };
        let publisher = publisher_settings(&settings, &ProcessEnvironment::default())
            .map(|it| Publisher::new(it, parts));
        let parts = NodePluginServerParts {
            publisher: publisher.unwrap(),
            provider: None,
            metrics: NodeMetrics::new(Arc::clone(&clock)),
            readiness: Readiness::default(),
            clock: Arc::clone(&clock),
        };
        Self { dir, server: NodePluginServer::new(settings.server, parts), clock }
    }

    async fn serve(self, tasks: SupervisedTasks) -> String {
        let drain = (Duration::from_mins(1), &self.clock);
        let signals = TerminationSignals::listen().unwrap();
        tokio::select! {
            ended = serve_until_stopped(self.server, signals, tasks, drain) => ended.unwrap_err().to_string(),
            () = self.clock.sleep(Duration::from_mins(1)) => panic!("the server did not end"),
        }
    }
}

#[tokio::test]
async fn process_ends_and_names_the_failed_task() {
    let fixture = NodeServeFixture::new();
    let mut tasks = SupervisedTasks::default();
    tasks.spawn("the rotation", tasks.shutdown_signal());
    let socket = fixture.dir.path().join("csi.sock");
    let clock = Arc::clone(&fixture.clock);
    tasks.spawn_fallible("the metrics endpoint", async move {
        while tokio::net::UnixStream::connect(&socket).await.is_err() {
            clock.sleep(Duration::from_millis(5)).await;
        }
        Err(io::Error::other("no more descriptors"))
    });
    let error = fixture.serve(tasks).await;
    assert!(error.contains("the metrics endpoint failed: no more descriptors"), "{error}");
    assert!(error.contains("hint: nothing is lost"), "{error}");
}

#[tokio::test]
async fn bind_retries_while_the_port_is_in_use() {
    let clock = SystemClock::shared();
    let before = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = ListenAddress::Single(before.local_addr().unwrap());
    let a_while = async {
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        listening = NodeHttpEndpoints::bind_with_retry(address, &clock) => panic!("{listening:?}"),
        () = a_while => {}
    }
    drop(before);
    assert!(NodeHttpEndpoints::bind_with_retry(address, &clock).await.unwrap().is_some());
}
