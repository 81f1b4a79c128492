//! The node plugin, put together.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{SharedClock, SystemClock};
use lanyard_node::audit::{AuditSink, AuditTrail};
use lanyard_node::policy::PolicyKeeper;
use lanyard_node::rotation::Rotator;
use lanyard_node::{
    CountedProvider, CountedReporter, NodeApi, NodeMemory, NodeMetrics, NodeServer,
    NodeServerParts, NodeServerSettings, PodOverrides, Provider, ProviderRegistry, Publisher,
    PublisherParts, PublisherSettings, SecretSync, ServedProvider, SocketProviders, SocketSettings,
    SyncProblem,
};
use lanyard_telemetry::{
    BuildInfo, Gate, ListenAddress, Listening, Liveness, MetricsPage, ProcessMetrics, Readiness,
    Remarks, health_routes, metrics_routes,
};
use lanyard_vocabulary::causes;

use super::azure;
use super::beside::{Beside, BrokenPart};
use super::claim::Claim;
use super::flags::{AzureProviderKind, NodeArgs, PolicyArgs, ProviderArgs};
use super::kubernetes::{self, Cluster, Surroundings};
use super::settings::NodeSettings;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::settings::Environment;
use crate::signals::Signals;

/// Serves until a supervisor asks for the end.
pub(super) async fn run(args: NodeArgs, environment: Environment) -> CommandResult {
    let settings = NodeSettings::resolve(&args)?;
    let mut signals = Signals::listen()?;
    tell_odd(&args, &settings);
    let clock = clock(&environment)?;
    let readiness = Readiness::default();
    let metrics = NodeMetrics::new(SharedClock::clone(&clock));
    let mut beside = Beside::default();
    let pages = tokio::select! {
        pages = Pages::bind(&args, &settings, &clock) => pages?,
        _ = signals.end() => return Ok(Exit::Good),
    };

    let surroundings =
        Surroundings { environment: &environment, readiness: &readiness, metrics: &metrics };
    let cluster = Cluster::open(&args, &settings, &surroundings, &clock).await?;
    let (policy, audit) = policy(&args.policy, &metrics, &clock)?;
    let before = azure::Before { policy: &policy, audit: &audit, metrics: &metrics };
    let publisher_settings =
        PublisherSettings { audit: audit.clone(), ..publisher_settings(&settings, &environment)? };
    let memory = publisher_settings.memory.clone();
    let azure = built_in(&args, &environment, &before, (&memory, &clock))?;
    let sockets =
        Arc::new(SocketProviders::new(socket_settings(&args.providers), Arc::clone(&clock)));
    let registry =
        ProviderRegistry::new(azure.clone(), Arc::clone(&sockets), overrides(&args.providers));
    let provider = Arc::new(CountedProvider::new(Arc::new(registry), metrics.clone()));
    let parts = PublisherParts {
        classes: Arc::clone(&cluster.classes),
        provider,
        reporter: Arc::new(CountedReporter::new(Arc::clone(&cluster.reporter), metrics.clone())),
        clock: Arc::clone(&clock),
    };
    let publisher = Publisher::new(publisher_settings, parts);
    let served = args.providers.provider_socket.clone().zip(azure);
    let provider =
        served.map(|(path, it)| (path, ServedProvider::new(it, memory, Arc::clone(&clock))));
    let claimed = settings.lock_file();
    let drain = settings.server.drain;
    let parts = NodeServerParts {
        publisher: publisher.clone(),
        provider,
        metrics: metrics.clone(),
        readiness: readiness.clone(),
        clock: Arc::clone(&clock),
    };
    let server = server(settings.server, parts, &environment);
    let liveness = server.liveness(settings.health_timeout);
    let health = (liveness, settings.health_path.as_str());
    let remarks = remarks(&policy, settings.memory_remark, cluster.sync.as_ref());
    let ready = (readiness.clone(), remarks);
    pages.serve(&mut beside, health, ready, &metrics, &clock);

    let gate = readiness.gate("volumes", "not looked at yet");
    tokio::select! {
        claim = Claim::wait(&claimed, &gate, &clock) => claim.keep(),
        _ = signals.end() => {
            beside.end(drain, &clock).await;
            audit.flush();
            return Ok(Exit::Good);
        }
        part = beside.broken() => return Err(part.into_command_error()),
    }
    recover(&publisher).await?;
    let rotator = Rotator::new(
        Arc::new(publisher),
        cluster.classes,
        kubernetes::alone(&cluster.reporter, &metrics),
        Arc::clone(&clock),
        settings.rotator,
    );
    beside.spawn("the rotation", rotator.run(beside.ended()));
    follow_cluster(&mut beside, cluster.api, cluster.sync, &clock);
    watch_providers(&mut beside, &args.providers, sockets);
    if args.policy.policy_file.is_some() {
        watch_policy(&mut beside, policy, &audit, &clock);
    }
    let ended = serve(server, signals, beside, (drain, &clock)).await;
    // It blocks until the last lines are written, and nothing else is to be done here.
    audit.flush();
    ended
}

/// The server of the CSI socket. Builds with the feature `sanity` can add the controller for csi-sanity.
#[cfg_attr(
    not(feature = "sanity"),
    expect(
        unused_variables,
        reason = "only the controller for csi-sanity is switched by a variable"
    )
)]
fn server(
    settings: NodeServerSettings,
    parts: NodeServerParts,
    environment: &Environment,
) -> NodeServer {
    let server = NodeServer::new(settings, parts);
    #[cfg(feature = "sanity")]
    let server = server.with_test_controller(environment.test_controller);
    server
}

/// Our own provider, unless another one has its socket.
fn built_in(
    args: &NodeArgs,
    environment: &Environment,
    before: &azure::Before<'_>,
    (memory, clock): (&NodeMemory, &SharedClock),
) -> Result<Option<Arc<dyn Provider>>, CommandError> {
    match args.providers.azure_provider {
        AzureProviderKind::Socket => Ok(None),
        AzureProviderKind::BuiltIn => {
            azure::provider(args, environment, before, (memory, clock)).map(Some)
        }
    }
}

/// Tells what is odd about the flags though they can be obeyed.
fn tell_odd(args: &NodeArgs, settings: &NodeSettings) {
    for flag in args.without_meaning.given() {
        tracing::warn!(flag, "this flag has no effect here");
    }
    if let Some(remark) = &settings.memory_remark {
        tracing::warn!("{remark}");
    }
}

/// Serves until the end is asked for or a part broke. From then on everything together may take
/// `drain`: what is at work on a volume then is found by the next process.
async fn serve(
    server: NodeServer,
    mut signals: Signals,
    mut beside: Beside,
    (drain, clock): (Duration, &SharedClock),
) -> CommandResult {
    let (mut broken, mut began) = (None, None);
    let end = async {
        tokio::select! {
            end = signals.end() => tracing::info!(?end, "ending; mounted volumes stay"),
            part = beside.broken() => {
                let error: &dyn std::error::Error = &part;
                tracing::error!(error, "ending, so that the process is started anew");
                broken = Some(part);
            }
        }
        began = Some(clock.monotonic());
    };
    let outcome = server.run(end).await;
    let spent = began.map(|began| clock.monotonic().saturating_sub(began)).unwrap_or_default();
    beside.end(drain.saturating_sub(spent).max(SHORTEST_END), clock).await;
    outcome.map_err(|error| CommandError::unavailable(causes(&error)).hint(error.hint()))?;
    if began.is_none() {
        broken = Some(BrokenPart::Over { part: "what serves the sockets" });
    }
    broken.map_or(Ok(Exit::Good), |part| Err(part.into_command_error()))
}

/// What the parts beside the sockets may take to end when the calls in flight took all the time.
const SHORTEST_END: Duration = Duration::from_secs(2);

/// Opens the gate of the API as soon as it answers, and keeps Secrets in step.
fn follow_cluster(
    beside: &mut Beside,
    api: Option<(NodeApi, Gate)>,
    sync: Option<SecretSync>,
    clock: &SharedClock,
) {
    if let Some((api, gate)) = api {
        let reached = kubernetes::reach(api, gate, Arc::clone(clock));
        beside.spawn_once("the first question to the Kubernetes API", reached);
    }
    if let Some(sync) = sync {
        beside.spawn_until_end("the synchronization of Secrets", sync.run());
    }
}

fn watch_policy(
    beside: &mut Beside,
    policy: Arc<PolicyKeeper>,
    audit: &AuditTrail,
    clock: &SharedClock,
) {
    let following = policy.follow(Arc::clone(clock), audit.clone());
    beside.spawn_until_end("the watch of the policy file", following);
}

fn watch_providers(beside: &mut Beside, args: &ProviderArgs, sockets: Arc<SocketProviders>) {
    if args.provider_health_check.0 {
        let interval = args.provider_health_check_interval.0;
        let watching = async move { sockets.watch_health(interval).await };
        beside.spawn_until_end("the health check of the providers", watching);
    }
}

/// The pages for monitoring systems and for the kubelet's probes.
struct Pages {
    metrics: Option<Listening>,
    health: Option<Listening>,
}

impl Pages {
    /// Binds the pages, as soon as nobody else has their ports: on the network of the host the
    /// process before this one has them until it has answered its last call.
    async fn bind(
        args: &NodeArgs,
        settings: &NodeSettings,
        clock: &SharedClock,
    ) -> Result<Self, CommandError> {
        let metrics = Self::listen(args.pages.metrics_addr, clock).await?;
        Ok(Self { metrics, health: Self::listen(settings.health, clock).await? })
    }

    async fn listen(
        address: ListenAddress,
        clock: &SharedClock,
    ) -> Result<Option<Listening>, CommandError> {
        let mut is_told = false;
        loop {
            match Listening::bind(address).await {
                Err(error) if error.source.kind() == io::ErrorKind::AddrInUse => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::warn!(hint = error.hint(), "{}; trying again", causes(&error));
                    }
                    clock.sleep(LOOK_EVERY).await;
                }
                bound => {
                    return bound.map_err(|error| {
                        CommandError::unavailable(causes(&error)).hint(error.hint())
                    });
                }
            }
        }
    }

    fn serve(
        self,
        beside: &mut Beside,
        (liveness, path): (Liveness, &str),
        (readiness, remarks): (Readiness, Remarks),
        metrics: &NodeMetrics,
        clock: &SharedClock,
    ) {
        let page = MetricsPage::build(|registry| {
            metrics.register(registry);
            ProcessMetrics.register(registry);
            BuildInfo { version: env!("CARGO_PKG_VERSION") }.register(registry);
        });
        let health = health_routes(path, liveness, readiness, remarks);
        let pages = [
            ("the metrics page", self.metrics, metrics_routes(page)),
            ("the health page", self.health, health),
        ];
        for (part, listening, routes) in pages {
            let Some(listening) = listening else { continue };
            tracing::info!(address = %listening.address(), "serving {part}");
            beside.spawn_fallible(part, listening.serve(routes, Arc::clone(clock), beside.ended()));
        }
    }
}

/// How soon it is noticed that a port is free.
const LOOK_EVERY: Duration = Duration::from_secs(1);

fn policy(
    args: &PolicyArgs,
    metrics: &NodeMetrics,
    clock: &SharedClock,
) -> Result<(Arc<PolicyKeeper>, AuditTrail), CommandError> {
    let keeper = match &args.policy_file {
        None => PolicyKeeper::without_file(),
        Some(path) => PolicyKeeper::load(path).map_err(|error| {
            CommandError::invalid(causes(&error)).hint("`lanyard node policy suggest` writes one")
        })?,
    };
    let audit = match &args.audit_file {
        None => AuditTrail::unwritten(Arc::clone(clock)),
        Some(path) => {
            let is_stdout = path == Path::new("-");
            let sink = if is_stdout { AuditSink::Stdout } else { AuditSink::File(path.clone()) };
            AuditTrail::begin(&sink, Arc::clone(clock))
                .map_err(|error| CommandError::unavailable(causes(&error)).hint(error.hint()))?
        }
    };
    let keeper = Arc::new(keeper);
    metrics.watch_policy(Arc::clone(&keeper));
    Ok((keeper, audit))
}

/// What is amiss though volumes are served.
fn remarks(
    policy: &Arc<PolicyKeeper>,
    memory: Option<String>,
    sync: Option<&SecretSync>,
) -> Remarks {
    let (policy, sync) = (Arc::clone(policy), sync.map(SecretSync::problem));
    Remarks::default()
        .with("policy", move || policy.warning())
        .with("memory of volumes", move || memory.clone())
        .with("synchronized Secrets", move || sync.as_ref().and_then(SyncProblem::remark))
}

/// The additional directories are searched first, as upstream does.
fn socket_settings(args: &ProviderArgs) -> SocketSettings {
    let mut directories = args.additional_provider_volume_paths.clone();
    directories.retain(|directory| !directory.as_os_str().is_empty());
    directories.push(args.provider_volume.clone());
    SocketSettings { directories, largest_answer: args.max_call_recv_msg_size }
}

const fn overrides(args: &ProviderArgs) -> PodOverrides {
    if args.pod_overrides_parameters.0 { PodOverrides::Allowed } else { PodOverrides::Refused }
}

#[cfg(not(feature = "crash-points"))]
#[expect(clippy::unnecessary_wraps, reason = "what is added for the crash matrix can be misspelt")]
fn clock(_environment: &Environment) -> Result<SharedClock, CommandError> {
    Ok(SystemClock::shared())
}

#[cfg(feature = "crash-points")]
fn clock(environment: &Environment) -> Result<SharedClock, CommandError> {
    let Some(seconds) = &environment.clock_ahead else { return Ok(SystemClock::shared()) };
    let seconds = seconds.parse().map_err(|error: std::num::ParseIntError| {
        CommandError::invalid("LANYARD_CLOCK_AHEAD").because(&error)
    })?;
    let ahead = Duration::from_secs(seconds);
    Ok(Arc::new(super::later::LaterClock { clock: SystemClock::shared(), ahead }))
}

#[cfg_attr(
    not(feature = "crash-points"),
    expect(clippy::unnecessary_wraps, unused_variables, reason = "a crash point can be misspelt")
)]
fn publisher_settings(
    settings: &NodeSettings,
    environment: &Environment,
) -> Result<PublisherSettings, CommandError> {
    let NodeSettings { server, rotator, volume_content_limit, volumes_memory_limit, .. } = settings;
    let mut publisher = PublisherSettings::new(&server.kubelet_dir, server.driver.as_str());
    publisher.interval = rotator.interval;
    publisher.interval_bounds = rotator.bounds;
    publisher.content_limit = *volume_content_limit;
    if let Some(limit) = volumes_memory_limit {
        publisher.memory = NodeMemory::new(*limit);
    }
    #[cfg(feature = "crash-points")]
    if environment.mount_in_place {
        publisher.staged_mounts = false;
    }
    #[cfg(feature = "crash-points")]
    if let Some(point) = &environment.crash_at {
        publisher.crash_at = Some(point.parse().map_err(|error| {
            let error: lanyard_node::ParseCrashPointError = error;
            CommandError::invalid("LANYARD_CRASH_AT").because(&error)
        })?);
    }
    Ok(publisher)
}

/// Goes on with what an earlier process mounted.
async fn recover(publisher: &Publisher) -> Result<(), CommandError> {
    let recovered = publisher
        .recover()
        .await
        .map_err(|failure| CommandError::unavailable(failure.message).hint(failure.hint))?;
    for (target, failure) in &recovered.problems {
        tracing::warn!(target_path = %target.display(), code = %failure.code, "{failure}");
    }
    tracing::info!(volumes = recovered.volumes, "went on with mounted volumes");
    Ok(())
}

#[cfg(test)]
mod tests;
