//! The operator, put together.

use std::time::Duration;

use lanyard_clock::{SharedClock, SystemClock};
use lanyard_kubernetes::{KubernetesApi, UserAgent};
use lanyard_operator::Operator;
use lanyard_telemetry::{
    BuildInfo, Listening, Liveness, MetricsPage, ProcessMetrics, Readiness, Remarks, health_routes,
    metrics_routes,
};
use lanyard_vocabulary::causes;
use tokio::sync::oneshot;

use super::flags::OperatorArgs;
use super::settings;
use crate::commands::cluster_access;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::output;
use crate::settings::Environment;
use crate::signals::Signals;

/// Works until a supervisor asks for the end.
pub(super) async fn run(args: OperatorArgs, environment: Environment) -> CommandResult {
    let settings = settings::resolve(&args, fastrand::u32(..))?;
    let mut signals = Signals::listen()?;
    let clock = SystemClock::shared();
    let api = connect(&args, &environment, &clock).await?;
    let readiness = Readiness::default();
    if settings.vault_reader.is_none() {
        tracing::warn!(
            hint = "give --vault-reader",
            "the classes name no identity, so the node's own is used"
        );
    }
    for lint in &settings.templates.lint_vault_reader(settings.vault_reader) {
        tracing::warn!(hint = lint.hint, "--templates: {lint}");
    }
    let operator = Operator::new(api, settings, &readiness);
    if args.dry_run {
        return tokio::select! {
            outcome = plan(operator, &readiness, &clock) => outcome,
            _ = signals.end() => {
                output::note("ended before everything was listed: nothing was compared");
                Ok(Exit::Failed)
            }
        };
    }
    let listening = Listening::bind(args.metrics_addr)
        .await
        .map_err(|error| CommandError::unavailable(causes(&error)).hint(error.hint()))?;
    let pages = pages(listening, &operator, &readiness, &clock);
    let (stop, stopped) = oneshot::channel::<()>();
    let mut work = std::pin::pin!(operator.run(async { drop(stopped.await) }));
    tokio::select! {
        () = &mut work => {
            let error = CommandError::unavailable("the operator ended by itself");
            return Err(error.hint("report this defect"));
        }
        served = pages => return served,
        end = signals.end() => tracing::info!(?end, "ending"),
    }
    // It fails only where the operator is over already.
    stop.send(()).ok();
    work.await;
    Ok(Exit::Good)
}

async fn connect(
    args: &OperatorArgs,
    environment: &Environment,
    clock: &SharedClock,
) -> Result<KubernetesApi, CommandError> {
    let access = cluster_access::access(args.kubeconfig.as_deref(), environment)?;
    let Some(access) = access else {
        return Err(CommandError::invalid("there is no way to the Kubernetes API")
            .hint("give --kubeconfig outside of a cluster"));
    };
    let agent = UserAgent::from_static(concat!("lanyard-operator/", env!("CARGO_PKG_VERSION")));
    KubernetesApi::connect(&access, agent, SharedClock::clone(clock))
        .await
        .map_err(|error| CommandError::unavailable(causes(&error)).hint(error.hint()))
}

/// Prints what would be done about every cluster.
async fn plan(operator: Operator, readiness: &Readiness, clock: &SharedClock) -> CommandResult {
    let plans = tokio::select! {
        plans = operator.plan() => plans,
        () = clock.sleep(LONGEST_LISTING) => {
            let problems = readiness.problems();
            let told: Vec<_> = problems.iter().map(ToString::to_string).collect();
            return Err(CommandError::unavailable(told.join("; "))
                .hint("see that the CRDs of the chart are installed and may be listed"));
        }
    };
    let is_good = plans.iter().all(|plan| plan.is_good);
    if plans.is_empty() {
        output::note("there is no HostedCluster");
    }
    let texts: Vec<_> = plans.iter().map(ToString::to_string).collect();
    output::print(&texts.join("\n"))?;
    Ok(if is_good { Exit::Good } else { Exit::Failed })
}

/// Serves the pages; never ends where there are none.
fn pages(
    listening: Option<Listening>,
    operator: &Operator,
    readiness: &Readiness,
    clock: &SharedClock,
) -> impl Future<Output = CommandResult> + use<> {
    let page = MetricsPage::build(|registry| {
        operator.register(registry);
        ProcessMetrics.register(registry);
        BuildInfo { version: env!("CARGO_PKG_VERSION") }.register(registry);
    });
    let alive = || std::future::ready(Ok(()));
    let liveness = Liveness::new(alive, LIVENESS_LIMIT, SharedClock::clone(clock));
    let health = health_routes("/healthz", liveness, readiness.clone(), Remarks::default());
    let routes = health.merge(metrics_routes(page));
    let clock = SharedClock::clone(clock);
    async move {
        let Some(listening) = listening else { return std::future::pending().await };
        tracing::info!(address = %listening.address(), "serving metrics and health");
        let served = listening.serve(routes, clock, std::future::pending()).await;
        let error = served.err().map(|error| causes(&error)).unwrap_or_default();
        Err(CommandError::unavailable(format!("the pages could not go on: {error}")))
    }
}

const LIVENESS_LIMIT: Duration = Duration::from_secs(5);
/// How long everything may take to be listed, where somebody waits for the answer.
const LONGEST_LISTING: Duration = Duration::from_mins(1);
