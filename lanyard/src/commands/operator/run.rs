//! Assembles and runs the operator.

use std::time::Duration;

use lanyard_clock::{SharedClock, SystemClock};
use lanyard_kubernetes::{KubernetesApi, UserAgent};
use lanyard_operator::{ClusterPlan, Operator};
use lanyard_telemetry::{BoundListener, MetricsPage, Readiness, serve_process_endpoints};
use tokio::sync::oneshot;

use super::flags::OperatorArgs;
use super::settings;
use crate::commands::cluster_access;
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output;
use crate::settings::ProcessEnvironment;
use crate::signals::TerminationSignals;

/// Runs until a termination signal.
pub(super) async fn run(args: OperatorArgs, environment: ProcessEnvironment) -> CommandResult {
    let settings = settings::resolve_settings(&args, fastrand::u32(..))?;
    let mut signals = TerminationSignals::listen()?;
    let clock = SystemClock::shared();
    let api = connect(&args, &environment, &clock).await?;
    let readiness = Readiness::default();
    if settings.vault_reader.is_none() {
        tracing::warn!(
            hint = "give --vault-reader",
            "the classes name no identity, so the node's own is used"
        );
    }
    let templates = &settings.templates;
    let lints = templates.lint_vault_reader(settings.vault_reader).into_iter();
    for lint in lints.chain(templates.lint_encryption_flags()) {
        tracing::warn!(hint = lint.hint, "--templates: {lint}");
    }
    let operator = Operator::new(api, settings, &readiness);
    if args.dry_run {
        return tokio::select! {
            outcome = print_plans(operator, &readiness, &clock, args.exit_code) => outcome,
            _ = signals.wait() => {
                output::print_stderr("interrupted while listing objects: nothing was compared");
                Ok(CommandExit::Failed)
            }
        };
    }
    let listening = BoundListener::bind(args.metrics_addr).await?;
    let page = MetricsPage::of_process(env!("CARGO_PKG_VERSION"), |registry| {
        operator.register(registry);
    });
    let http_server = serve_process_endpoints(listening, page, readiness, clock);
    let (stop, stopped) = oneshot::channel::<()>();
    let mut work = std::pin::pin!(operator.run(async { drop(stopped.await) }));
    tokio::select! {
        () = &mut work => {
            let error = CommandError::unavailable("the operator ended unexpectedly");
            return Err(error.with_hint("report this bug"));
        }
        error = http_server => return Err(CommandError::endpoints_failed(error)),
        end = signals.wait() => tracing::info!(?end, "ending"),
    }
    // Sending fails only if the operator has already ended.
    stop.send(()).ok();
    work.await;
    Ok(CommandExit::Success)
}

async fn connect(
    args: &OperatorArgs,
    environment: &ProcessEnvironment,
    clock: &SharedClock,
) -> Result<KubernetesApi, CommandError> {
    let access = cluster_access::api_access(args.kubeconfig.as_deref(), environment)?;
    let Some(access) = access else {
        return Err(CommandError::invalid_input("cannot connect to the Kubernetes API")
            .with_hint("give --kubeconfig outside of a cluster"));
    };
    let agent = UserAgent::from_static(concat!("lanyard-operator/", env!("CARGO_PKG_VERSION")));
    KubernetesApi::connect(&access, agent, SharedClock::clone(clock))
        .await
        .map_err(CommandError::from)
}

/// Prints the planned changes for every cluster. Changes fail the command if `fails_on_changes` is set.
async fn print_plans(
    operator: Operator,
    readiness: &Readiness,
    clock: &SharedClock,
    fails_on_changes: bool,
) -> CommandResult {
    let plans = tokio::select! {
        plans = operator.plan() => plans,
        () = clock.sleep(LIST_TIMEOUT) => {
            let problems = readiness.problems();
            let reasons: Vec<_> = problems.iter().map(ToString::to_string).collect();
            return Err(CommandError::unavailable(reasons.join("; "))
                .with_hint(
                    "check that the CRDs of the chart are installed, and that the operator may list them",
                ));
        }
    };
    let is_good =
        |plan: &ClusterPlan| plan.is_applicable && !(fails_on_changes && plan.has_changes);
    let is_good = plans.iter().all(is_good);
    if plans.is_empty() {
        output::print_stderr("there are no HostedClusters");
    }
    let texts: Vec<_> = plans.iter().map(ToString::to_string).collect();
    output::print_stdout(&texts.join("\n"))?;
    Ok(if is_good { CommandExit::Success } else { CommandExit::Failed })
}

/// The time limit for the initial lists of a dry run.
const LIST_TIMEOUT: Duration = Duration::from_mins(1);
