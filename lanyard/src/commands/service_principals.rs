//! What the commands for service principals share: the environment, the client and the result.

use std::borrow::Cow;
use std::time::Duration;

use futures::future::join_all;
use lanyard_azure::{ArmClient, PropagationWait};
use lanyard_changes::{
    AzureEffect, AzureResource, EntraApplication, RecordedState, ResourceId, ResourceKey,
};
use lanyard_clock::{ErrorHint as _, SharedClock};
use lanyard_infra::stacks;
use lanyard_service_principals::{
    ChangeObserver, CreatedServicePrincipal, CredentialVault, EnvironmentPrefix,
    ServicePrincipalClient, ServicePrincipalError, ServicePrincipalNames, TokenProof,
};
use lanyard_vocabulary::{Component, EntraTenantId, VaultName, format_error_chain};
use parking_lot::Mutex;
use serde::Serialize;

use super::azure_account::AzureAccount;
use super::azure_resources::shared_stack::SharedStack;
use super::rotation_timing::parse_duration;
use crate::exit::{CommandError, CommandExit, ExternalResult as _, ResultExt as _};
use crate::output::{self, ColumnKind, TextTable};
use crate::settings::ProcessEnvironment;

/// The flags that name an environment.
#[derive(Debug, Clone, clap::Args)]
pub(in crate::commands) struct EnvironmentArgs {
    /// The prefix of the environment, which ends the names of the components' identities (`cpo-PREFIX`) and
    /// begins the name of the management cluster (`PREFIX-aks-cluster`)
    #[arg(long, value_name = "PREFIX")]
    pub(in crate::commands) prefix: EnvironmentPrefix,
    /// The name of the vault [default: the prefix]
    #[arg(long, value_name = "NAME")]
    pub(in crate::commands) vault: Option<VaultName>,
}

/// The longest time until Microsoft Graph and Entra ID know a new object everywhere, that `az` waits for as well.
const DIRECTORY_TIMEOUT: Duration = Duration::from_mins(3);

/// The flag of the longest wait for Azure.
#[derive(Debug, Clone, clap::Args)]
pub(in crate::commands) struct WaitArgs {
    /// How long the vault may answer 403 until a new role takes effect, such as `15m`
    #[arg(long, default_value = "15m", value_name = "DURATION", value_parser = parse_duration)]
    pub(in crate::commands) timeout: Duration,
}

impl EnvironmentArgs {
    /// The vault.
    pub(in crate::commands) fn vault(&self) -> Result<VaultName, CommandError> {
        if let Some(vault) = &self.vault {
            return Ok(vault.clone());
        }
        let named = self.prefix.to_string().parse::<VaultName>();
        named.or_invalid("--prefix does not name a vault").hint("name the vault with --vault")
    }

    /// The stack of the environment.
    pub(in crate::commands) fn stack<'a>(
        &'a self,
        account: &'a AzureAccount,
        environment: &'a ProcessEnvironment,
    ) -> SharedStack<'a> {
        let (name, stack) = (self.prefix.as_str(), stacks::IDENTITIES);
        SharedStack { account, name, stack, environment }
    }

    /// The client of the environment's service principals.
    pub(in crate::commands) fn client(
        &self,
        account: &AzureAccount,
        tenant: EntraTenantId,
        timeout: Duration,
        clock: &SharedClock,
    ) -> Result<ServicePrincipalClient, CommandError> {
        let wait = |timeout| PropagationWait { clock: SharedClock::clone(clock), timeout };
        let directory = wait(timeout.min(DIRECTORY_TIMEOUT));
        let url = format!("https://{}.{}", self.vault()?, account.endpoints.vault_suffix);
        let options = account.transport.client_options();
        let vault = CredentialVault::new(&url, &account.credential, &options, wait(timeout));
        Ok(ServicePrincipalClient {
            graph: account.graph(),
            vault: vault?,
            proof: TokenProof {
                scope: ArmClient::scope(account.endpoints),
                transport: account.tokens.clone(),
                propagation: directory.clone(),
            },
            prefix: self.prefix.clone(),
            tenant,
            authority: account.authority.clone(),
            clock: SharedClock::clone(clock),
            propagation: directory,
        })
    }

    /// The names of these components' service principals.
    pub(in crate::commands) fn names(
        &self,
        components: impl IntoIterator<Item = Component>,
    ) -> Result<Vec<ServicePrincipalNames>, CommandError> {
        let names = components.into_iter().map(|component| {
            ServicePrincipalNames::new(component, &self.prefix).or_invalid("--prefix")
        });
        names.collect()
    }
}

/// The key of a component's application in the journal of the environment.
pub(in crate::commands) fn application_key(component: Component) -> ResourceKey {
    ResourceKey::new(format!("application/{}", component.name()))
}

/// Checks that the journal records no application of another environment, which a removal would delete.
pub(in crate::commands) fn check_applications(
    recorded: &RecordedState,
    names: &[ServicePrincipalNames],
) -> Result<(), CommandError> {
    let is_other = |id: &ResourceId| {
        id.arm().is_none() && names.iter().all(|it| EntraApplication::id(it.name.as_str()) != *id)
    };
    match recorded.resources().find(|(_, record)| is_other(&record.id)) {
        None => Ok(()),
        Some((_, record)) => Err(CommandError::invalid_input(format!(
            "the journal records `{}`, which is not an application of this environment",
            record.id
        ))
        .with_hint("check who can write to the journal")),
    }
}

/// The application of a component, which the engine creates and removes.
pub(in crate::commands) fn application_resource(names: &ServicePrincipalNames) -> AzureResource {
    AzureResource {
        key: application_key(names.component),
        stack: stacks::IDENTITIES,
        id: EntraApplication::id(names.name.as_str()),
        effect: AzureEffect::EntraApplication(EntraApplication),
        depends_on: Vec::new(),
    }
}

/// What happened to one service principal.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::commands) struct ServicePrincipalRow {
    component: Component,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_id: Option<String>,
    secret: String,
    /// What was changed; empty if nothing was.
    changes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renew_after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// How a command ended for one service principal.
pub(in crate::commands) type StepOutcome<T> = Result<T, ServicePrincipalError>;

/// What a command did for one service principal.
struct ServicePrincipalRun<T> {
    names: ServicePrincipalNames,
    outcome: StepOutcome<T>,
    changes: Mutex<Vec<&'static str>>,
}

/// What a command did for several service principals.
pub(in crate::commands) struct EnvironmentRun<T>(Vec<ServicePrincipalRun<T>>);

/// Runs `action` for each service principal at the same time, and prints the changes to standard error.
pub(in crate::commands) async fn run_for_each<'a, T>(
    names: &'a [ServicePrincipalNames],
    action: impl AsyncFn(&'a ServicePrincipalNames, ChangeObserver<'_>) -> StepOutcome<T>,
) -> EnvironmentRun<T> {
    let runs = names.iter().map(async |names| {
        let changes = Mutex::default();
        let outcome = action(names, &|change| add_change(names, &changes, change)).await;
        ServicePrincipalRun { names: names.clone(), outcome, changes }
    });
    EnvironmentRun(join_all(runs).await)
}

/// Adds a change, and prints it to standard error.
fn add_change(
    names: &ServicePrincipalNames,
    changes: &Mutex<Vec<&'static str>>,
    change: &'static str,
) {
    output::print_stderr(&format!("{}: {change}", names.name));
    changes.lock().push(change);
}

impl<T> EnvironmentRun<T> {
    /// Runs a further `action` for each service principal whose outcome is a success.
    pub(in crate::commands) async fn continue_each(
        &mut self,
        action: impl AsyncFn(&ServicePrincipalNames, &T, ChangeObserver<'_>) -> StepOutcome<T>,
    ) {
        join_all(self.0.iter_mut().map(async |ServicePrincipalRun { names, outcome, changes }| {
            if let Ok(before) = outcome {
                *outcome = action(names, before, &|it| add_change(names, changes, it)).await;
            }
        }))
        .await;
    }

    /// The results of the successes.
    pub(in crate::commands) fn successes(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(|run| run.outcome.as_ref().ok())
    }

    /// A row for each service principal.
    pub(in crate::commands) fn rows(
        &self,
        complete: impl Fn(&T) -> Option<&CreatedServicePrincipal>,
    ) -> Vec<ServicePrincipalRow> {
        let row = |ServicePrincipalRun { names, outcome, changes }: &ServicePrincipalRun<T>| {
            let found = outcome.as_ref().ok().and_then(&complete);
            let error = outcome.as_ref().err();
            ServicePrincipalRow {
                component: names.component,
                name: names.name.to_string(),
                client_id: found.map(|it| it.client_id.to_string()),
                object_id: found.map(|it| it.object_id.to_string()),
                secret: names.secret.to_string(),
                changes: changes.lock().iter().map(ToString::to_string).collect(),
                renew_after: found.map(|it| it.renew_after.to_string()),
                not_after: found.map(|it| it.not_after.to_string()),
                error: error.map(|error| format_error_chain(error)),
                hint: error.and_then(ServicePrincipalError::hint).map(Cow::into_owned),
            }
        };
        self.0.iter().map(row).collect()
    }

    /// The exit code of the command.
    pub(in crate::commands) fn exit(&self) -> CommandExit {
        if self.0.iter().all(|run| run.outcome.is_ok()) {
            CommandExit::Success
        } else {
            CommandExit::Failed
        }
    }
}

/// The rows for people: a table, and below it the errors.
pub(in crate::commands) fn rows_text(
    rows: &[ServicePrincipalRow],
    line_width: Option<usize>,
) -> String {
    let mut table = TextTable::new(
        ["COMPONENT", "NAME", "CLIENT ID", "RENEW AFTER", "RESULT"]
            .map(|header| (ColumnKind::Name, header)),
    );
    for row in rows {
        let result = match (&row.error, row.changes.is_empty()) {
            (Some(_), _) => "failed",
            (None, true) => "unchanged",
            (None, false) => "changed",
        };
        let client_id = row.client_id.as_deref().unwrap_or("-");
        let renew_after = row.renew_after.as_deref().unwrap_or("-");
        table.add_row([row.component.name(), &row.name, client_id, renew_after, result]);
    }
    let mut lines = vec![table.render(line_width)];
    for row in rows {
        lines.extend(row.error.iter().map(|error| format!("{}: {error}", row.name)));
        lines.extend(row.hint.iter().map(|hint| format!("  hint: {hint}")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(component: Component, changes: &[&str], error: Option<&str>) -> ServicePrincipalRow {
        let found = error.is_none();
        ServicePrincipalRow {
            component,
            name: format!("{}-dev", component.name()),
            client_id: found.then(|| "7f1c6b0e-52d9-4a38-8e4f-b60d93a1c275".to_owned()),
            object_id: None,
            secret: format!("{}-dev", component.name()),
            changes: changes.iter().map(|it| (*it).to_owned()).collect(),
            renew_after: found.then(|| "2026-12-24T18:30:00Z".to_owned()),
            not_after: None,
            error: error.map(str::to_owned),
            hint: error.map(|_| "ask an owner of the vault for Key Vault Administrator".to_owned()),
        }
    }

    #[test]
    fn rows_at_each_width() {
        let rows = [
            row(Component::Disk, &["created the application"], None),
            row(Component::ControlPlaneOperator, &[], None),
            row(Component::Ingress, &[], Some("writing the secret failed: Forbidden")),
        ];
        let shown = [60, 80, 200]
            .map(|columns| format!("--- {columns} columns\n{}\n", rows_text(&rows, Some(columns))));
        insta::assert_snapshot!(shown.concat());
    }
}
