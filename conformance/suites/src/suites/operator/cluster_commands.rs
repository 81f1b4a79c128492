//! Trials of `lanyard create cluster azure` and `lanyard destroy cluster azure` with a real API server and a local
//! Azure. They run on an API server of their own, because they install the kind NodePool.

mod azure_observer;
mod command_fixture;

use std::sync::Arc;

use kube::api::{DeleteParams, Patch, PatchParams};
use libtest_mimic::{Failed, Trial};
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::command_fixture::{
    CommandFixture, INFRA_ID, ISSUER, NAME, NAMESPACE, create_arguments,
    create_from_file_arguments, create_infra_arguments, destroy_arguments, without_infra_id,
};
use super::OperatorSuiteFixture;
use crate::suites::expect_equal;

/// The finalizer that `destroy cluster azure` puts on a HostedCluster.
const DESTROY_FINALIZER: &str = "openshift.io/destroy-cluster";
/// A finalizer of another program.
const OTHER_FINALIZER: &str = "trial.lanyard.dev/wait";
/// How long a trial waits for another program's finalizer, in seconds.
const GRACE_PERIOD: &str = "--cluster-grace-period=1s";

/// A trial of the commands.
#[derive(Clone, Copy)]
struct CommandTrial {
    name: &'static str,
    run: fn(&CommandFixture) -> Result<(), Failed>,
}

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    let trial = |name, run| CommandTrial { name, run };
    let trials: [CommandTrial; 14] = [
        // NodePool is installed after this trial.
        trial("missing_node_pool_kind_is_reported_before_the_first_write", missing_node_pool_kind),
        trial("created_cluster_is_accepted_and_a_second_run_changes_nothing", created_twice),
        trial("destroy_leaves_azure_and_kubernetes_as_before", destroyed),
        trial("killed_commands_are_continued", killed),
        trial("destroy_waits_for_finalizers_of_others_unless_forced", other_finalizers),
        trial("finalizer_stays_while_infrastructure_is_left", failed_infrastructure),
        trial("addresses_of_the_running_cluster_are_removed_before_its_groups", router_address),
        trial("failed_apply_names_the_infrastructure_id", failed_apply),
        trial("missing_group_of_the_user_does_not_stop_destroy", missing_group),
        trial("infrastructure_without_a_cluster_is_found_by_its_journal", lost_cluster),
        trial("managed_private_cluster_is_created_from_an_infrastructure_file", managed_cluster),
        trial("private_cluster_names_a_subnet_that_destroy_leaves", private_cluster),
        trial("destroy_without_a_journal_names_the_import", no_journal),
        // The kind is removed for good.
        trial("destroy_without_the_kind_hosted_cluster_needs_force", missing_hosted_cluster_kind),
    ];
    let shared: Arc<Mutex<Option<Arc<CommandFixture>>>> = Arc::default();
    let trials = trials.into_iter().enumerate().map(|(position, trial)| {
        let (suite, shared) = (suite.clone(), Arc::clone(&shared));
        Trial::test(format!("cluster_commands::{}", trial.name), move || {
            let fixture = shared_fixture(&suite, &shared)?;
            if position > 0 {
                fixture.install_node_pools()?;
            }
            (trial.run)(&fixture)
        })
    });
    trials.collect()
}

/// The fixture that the first trial starts.
fn shared_fixture(
    suite: &OperatorSuiteFixture,
    shared: &Mutex<Option<Arc<CommandFixture>>>,
) -> Result<Arc<CommandFixture>, Failed> {
    let mut shared = shared.lock();
    if let Some(fixture) = &*shared {
        return Ok(Arc::clone(fixture));
    }
    let fixture = Arc::new(CommandFixture::start(suite)?);
    *shared = Some(Arc::clone(&fixture));
    Ok(fixture)
}

fn missing_node_pool_kind(fixture: &CommandFixture) -> Result<(), Failed> {
    let before = fixture.azure_resources()?;
    let failed = fixture.run(&create_arguments())?;
    expect_equal("exit code", failed.code, Some(3))?;
    failed.expect_error("does not serve the kind NodePool")?;
    expect_equal("Azure", fixture.azure_resources()?, before)?;
    expect_equal("namespace", fixture.namespace_exists()?, false)
}

fn created_twice(fixture: &CommandFixture) -> Result<(), Failed> {
    let created = fixture.succeed(&create_arguments())?;
    let kinds = results(&created);
    let expected = [
        "Namespace",
        "Secret",
        "Secret",
        "Secret",
        "Secret",
        "Secret",
        "HostedCluster",
        "NodePool",
    ];
    expect_equal("objects", kinds, expected.map(|kind| format!("{kind} created")).to_vec())?;

    let cluster = fixture.hosted_cluster()?.ok_or("the HostedCluster does not exist")?;
    let spec = &cluster.data["spec"];
    expect_equal("infraID", &spec["infraID"], &json!(INFRA_ID))?;
    expect_equal("issuerURL", &spec["issuerURL"], &json!(ISSUER))?;
    expect_equal("cloud", &spec["platform"]["azure"]["cloud"], &json!("AzurePublicCloud"))?;
    for field in ["dns", "etcd", "networking", "release", "pullSecret", "services"] {
        if !spec[field].is_object() && !spec[field].is_array() {
            return Err(format!("spec.{field} is missing: {spec}").into());
        }
    }
    let workload = &spec["platform"]["azure"]["azureAuthenticationConfig"]["workloadIdentities"];
    expect_equal("identities", workload.as_object().map(serde_json::Map::len), Some(8))?;
    for (field, kind) in [("sshKey", "id_rsa.pub"), ("serviceAccountSigningKey", "key")] {
        let name = spec[field]["name"].as_str().unwrap_or_default();
        let secret = fixture.secret(name)?.ok_or_else(|| format!("no Secret {name}"))?;
        if secret.data["data"][kind].as_str().is_none_or(str::is_empty) {
            return Err(format!("Secret {name} has no `{kind}`").into());
        }
    }

    let versions = fixture.object_versions()?;
    let azure = fixture.azure_resources()?;
    let second = fixture.succeed(&create_arguments())?;
    let changed: Vec<_> =
        results(&second).into_iter().filter(|it| !it.ends_with(" unchanged")).collect();
    expect_equal("changed objects", changed, Vec::<String>::new())?;
    expect_equal("versions", fixture.object_versions()?, versions)?;
    expect_equal("Azure", fixture.azure_resources()?, azure)?;
    // The infrastructure id of the existing HostedCluster is the default.
    let without_id = without_infra_id(&create_arguments());
    fixture.succeed(&without_id)?;
    // Standard output is for the objects.
    let render = create_arguments().into_iter().chain(["--render".to_owned()]);
    let rendered = fixture.run(&render.collect::<Vec<_>>())?;
    expect_equal("exit code", rendered.code, Some(0))?;
    rendered.expect_error("\"infrastructure\": ")
}

/// Removes the cluster of the trial before.
fn destroyed(fixture: &CommandFixture) -> Result<(), Failed> {
    fixture.succeed(&create_arguments())?;
    let dry_run = fixture.succeed(&destroy_arguments(&["--dry-run"]))?;
    expect_equal("dry run", &dry_run["hostedCluster"], &json!("present"))?;
    if fixture.hosted_cluster()?.is_none() {
        return Err("the dry run deleted the HostedCluster".into());
    }
    // The infrastructure id comes from the HostedCluster.
    let arguments = destroy_arguments(&[]);
    let removed = fixture.succeed(&without_infra_id(&arguments))?;
    expect_equal("HostedCluster", &removed["hostedCluster"], &json!("deleted"))?;
    expect_equal("objects", removed["objects"].as_array().map(Vec::len), Some(5))?;
    fixture.expect_removed()?;
    // Nothing is left to do.
    let repeated = fixture.succeed(&arguments)?;
    expect_equal("HostedCluster", &repeated["hostedCluster"], &json!("absent"))?;
    fixture.expect_removed()
}

fn killed(fixture: &CommandFixture) -> Result<(), Failed> {
    let (create, destroy) = (create_arguments(), destroy_arguments(&[]));
    let mut kills = 0;
    for request in [3, 20, 60] {
        kills += u32::from(fixture.kill_at(&create, request)?);
        fixture.succeed(&create)?;
        kills += u32::from(fixture.kill_at(&destroy, request / 3)?);
        fixture.succeed(&destroy)?;
        fixture.expect_removed()?;
    }
    // Killed while HyperShift's operator would delete the parts of the cluster.
    fixture.succeed(&create)?;
    fixture.set_finalizers(&[OTHER_FINALIZER])?;
    fixture.kill_when_deleting(&destroy)?;
    fixture.set_finalizers(&[DESTROY_FINALIZER])?;
    fixture.succeed(&destroy)?;
    fixture.expect_removed()?;
    if kills < 4 {
        return Err(format!("only {kills} commands were killed").into());
    }
    Ok(())
}

fn other_finalizers(fixture: &CommandFixture) -> Result<(), Failed> {
    fixture.succeed(&create_arguments())?;
    fixture.set_finalizers(&[OTHER_FINALIZER])?;
    let azure = fixture.azure_resources()?;
    let failed = fixture.run(&destroy_arguments(&[GRACE_PERIOD]))?;
    expect_equal("exit code", failed.code, Some(3))?;
    failed.expect_error(OTHER_FINALIZER)?;
    expect_equal("Azure", fixture.azure_resources()?, azure)?;
    let cluster = fixture.hosted_cluster()?.ok_or("the HostedCluster is gone")?;
    let expected = [OTHER_FINALIZER, DESTROY_FINALIZER].map(str::to_owned).to_vec();
    expect_equal("finalizers", cluster.metadata.finalizers.clone(), Some(expected))?;
    let annotations = cluster.metadata.annotations.unwrap_or_default();
    let cleanup = annotations.get("hypershift.openshift.io/cleanup-cloud-resources");
    expect_equal("annotation", cleanup.map(String::as_str), Some("true"))?;
    // A deleted cluster cannot be created again.
    let failed = fixture.run(&create_arguments())?;
    failed.expect_error("is being deleted")?;
    fixture.succeed(&destroy_arguments(&[GRACE_PERIOD, "--force"]))?;
    fixture.expect_removed()
}

fn failed_infrastructure(fixture: &CommandFixture) -> Result<(), Failed> {
    fixture.succeed(&create_arguments())?;
    fixture.add_fault(&json!({
        "name": "locked", "service": "arm", "method": "DELETE", "path": "*/resourcegroups/*-vnet-*",
        "effect": { "type": "status", "status": 409, "code": "ScopeLocked" },
    }))?;
    for flags in [&[][..], &["--force"]] {
        let failed = fixture.run(&destroy_arguments(flags))?;
        expect_equal("exit code", failed.code, Some(1))?;
        failed.expect_error(DESTROY_FINALIZER)?;
        let cluster = fixture.hosted_cluster()?.ok_or("the HostedCluster is gone")?;
        let expected = vec![DESTROY_FINALIZER.to_owned()];
        expect_equal("finalizers", cluster.metadata.finalizers, Some(expected))?;
    }
    fixture.remove_fault("locked")?;
    fixture.succeed(&destroy_arguments(&[]))?;
    fixture.expect_removed()
}

/// HyperShift's operator removes the address of the router while the HostedCluster is being deleted.
fn router_address(fixture: &CommandFixture) -> Result<(), Failed> {
    let (create, destroy) = (create_arguments(), destroy_arguments(&[]));
    fixture.succeed(&create)?;
    let address = fixture.create_router_address()?;
    let dry_run = fixture.run(&destroy_arguments(&["--dry-run"]))?;
    expect_equal("exit code", dry_run.code, Some(0))?;
    dry_run.expect_error(&address)?;
    let azure = fixture.azure_resources()?;
    let failed = fixture.run(&destroy)?;
    expect_equal("exit code", failed.code, Some(2))?;
    failed.expect_error(&address)?;
    failed.expect_error(DESTROY_FINALIZER)?;
    expect_equal("Azure", fixture.azure_resources()?, azure)?;
    let cluster = fixture.hosted_cluster()?.ok_or("the HostedCluster is gone")?;
    let expected = vec![DESTROY_FINALIZER.to_owned()];
    expect_equal("finalizers", cluster.metadata.finalizers, Some(expected))?;
    fixture.delete_resource(&address)?;
    fixture.succeed(&destroy)?;
    fixture.expect_removed()?;

    fixture.succeed(&create)?;
    let address = fixture.create_router_address()?;
    fixture.set_finalizers(&[OTHER_FINALIZER])?;
    let mut child = fixture.spawn(&destroy)?;
    fixture.wait_until_deleting()?;
    fixture.delete_resource(&address)?;
    fixture.set_finalizers(&[DESTROY_FINALIZER])?;
    expect_equal("exit code", child.wait()?.code(), Some(0))?;
    fixture.expect_removed()
}

fn failed_apply(fixture: &CommandFixture) -> Result<(), Failed> {
    let create = create_arguments();
    // A dry run does not count towards the quota, so that only the objects after the infrastructure exceed it.
    fixture.limit_secrets(2)?;
    let failed = fixture.run(&create)?;
    expect_equal("exit code", failed.code, Some(3))?;
    failed.expect_error("exceeded quota")?;
    failed.expect_error(&format!("run the command again with --infra-id {INFRA_ID}"))?;
    fixture.remove_limit()?;
    fixture.succeed(&create)?;
    fixture.succeed(&destroy_arguments(&[]))?;
    fixture.expect_removed()
}

fn missing_group(fixture: &CommandFixture) -> Result<(), Failed> {
    const GROUP: &str = "harbour-of-the-user";
    fixture.create_group(GROUP)?;
    let mut create = create_arguments();
    create.extend(["--resource-group-name", GROUP].map(str::to_owned));
    fixture.succeed(&create)?;
    fixture.delete_group(GROUP)?;
    let destroy = destroy_arguments(&["--resource-group-name", GROUP]);
    fixture.succeed(&destroy)?;
    fixture.expect_removed()
}

fn lost_cluster(fixture: &CommandFixture) -> Result<(), Failed> {
    let create = create_arguments();
    fixture.succeed(&create)?;
    let parameters = DeleteParams::default();
    fixture.block_on(fixture.hosted_clusters().delete(NAME, &parameters))?;
    let failed = fixture.run(&without_infra_id(&create))?;
    expect_equal("exit code", failed.code, Some(2))?;
    failed.expect_error(&format!("continue with --infra-id {INFRA_ID}"))?;
    let journal = fixture.move_journals()?;
    let state = ["--state".to_owned(), journal];
    let failed = fixture.run(&[without_infra_id(&create), state.to_vec()].concat())?;
    fixture.return_journals()?;
    expect_equal("exit code", failed.code, Some(2))?;
    failed.expect_error(&format!("continue with --infra-id {INFRA_ID}"))?;
    let removed = fixture.succeed(&destroy_arguments(&[]))?;
    expect_equal("HostedCluster", &removed["hostedCluster"], &json!("absent"))?;
    fixture.expect_removed()
}

fn managed_cluster(fixture: &CommandFixture) -> Result<(), Failed> {
    fixture.write_managed_identities()?;
    fixture.succeed(&create_infra_arguments())?;
    let flags = [
        "--endpoint-access",
        "Private",
        "--endpoint-access-private-nat-subnet-id",
        &fixture.nat_subnet,
        "--endpoint-access-private-additional-allowed-subscriptions",
        "0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e41",
        "--encryption-key-id",
        "https://harbour-keys.vault.azure.net/keys/etcd/0a1b",
        "--kms-credentials-secret-name",
        "harbour-kms",
        "--availability-zones",
        "1,2,3",
    ];
    let create = create_from_file_arguments(&flags);
    let created = fixture.succeed(&create)?;
    let expected = ["Namespace unchanged", "Secret created", "Secret created"]
        .into_iter()
        .chain(["HostedCluster created"])
        .chain(["NodePool created"; 3])
        .map(str::to_owned);
    expect_equal("objects", results(&created), expected.collect())?;
    let cluster = fixture.hosted_cluster()?.ok_or("the HostedCluster does not exist")?;
    let azure = &cluster.data["spec"]["platform"]["azure"];
    let authentication = &azure["azureAuthenticationConfig"];
    let control_plane = &authentication["managedIdentities"]["controlPlane"];
    expect_equal("encoding", &control_plane["disk"]["objectEncoding"], &json!("hex"))?;
    expect_equal("topology", &azure["topology"], &json!("Private"))?;
    fixture.succeed(&destroy_arguments(&[]))?;
    fixture.expect_removed()
}

fn private_cluster(fixture: &CommandFixture) -> Result<(), Failed> {
    let mut create = create_arguments();
    create.extend(["--endpoint-access", "PublicAndPrivate"].map(str::to_owned));
    let failed = fixture.run(&create)?;
    expect_equal("exit code", failed.code, Some(2))?;
    failed.expect_error("`infra.endpointAccessPrivateNatSubnetId` is missing")?;
    fixture.expect_removed()?;
    let subnet = &fixture.nat_subnet;
    let before = fixture.management_network()?;
    create.extend(["--endpoint-access-private-nat-subnet-id", subnet].map(str::to_owned));
    fixture.succeed(&create)?;
    let cluster = fixture.hosted_cluster()?.ok_or("the HostedCluster does not exist")?;
    let azure = &cluster.data["spec"]["platform"]["azure"];
    expect_equal("topology", &azure["topology"], &json!("PublicAndPrivate"))?;
    expect_equal("subnet", &azure["private"]["privateLink"]["natSubnetID"], &json!(subnet))?;
    fixture.succeed(&destroy_arguments(&[]))?;
    expect_equal("management network", fixture.management_network()?, before)?;
    fixture.expect_removed()
}

fn no_journal(fixture: &CommandFixture) -> Result<(), Failed> {
    let unknown = ["destroy", "cluster", "azure", "--name", NAME, "--namespace", NAMESPACE];
    let mut arguments: Vec<_> = unknown.map(str::to_owned).to_vec();
    let failed = fixture.run(&arguments)?;
    expect_equal("exit code", failed.code, Some(2))?;
    failed.expect_error("--infra-id is missing")?;
    arguments.extend(["--infra-id", "harbour-other"].map(str::to_owned));
    let failed = fixture.run(&arguments)?;
    expect_equal("exit code", failed.code, Some(2))?;
    failed.expect_error("lanyard import azure")
}

fn missing_hosted_cluster_kind(fixture: &CommandFixture) -> Result<(), Failed> {
    fixture.remove_hosted_cluster_kind()?;
    let failed = fixture.run(&destroy_arguments(&[]))?;
    expect_equal("exit code", failed.code, Some(3))?;
    failed.expect_error("the API server of the context `")?;
    failed.expect_error("does not serve the kind HostedCluster")?;
    let removed = fixture.succeed(&destroy_arguments(&["--force"]))?;
    expect_equal("HostedCluster", &removed["hostedCluster"], &json!("absent"))
}

impl CommandFixture {
    /// Replaces the finalizers of the HostedCluster.
    fn set_finalizers(&self, finalizers: &[&str]) -> Result<(), Failed> {
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
        let (api, parameters) = (self.hosted_clusters(), PatchParams::default());
        self.block_on(api.patch(NAME, &parameters, &patch))?;
        Ok(())
    }

    fn wait_until_deleting(&self) -> Result<(), Failed> {
        self.wait_until("the HostedCluster is being deleted", || {
            let cluster = self.hosted_cluster()?;
            Ok(cluster.is_some_and(|it| it.metadata.deletion_timestamp.is_some()))
        })
    }

    /// Starts a command, and kills it once the HostedCluster is being deleted.
    fn kill_when_deleting(&self, arguments: &[String]) -> Result<(), Failed> {
        let mut child = self.spawn(arguments)?;
        let waited = self.wait_until_deleting();
        child.kill()?;
        child.wait()?;
        waited
    }

    /// Neither Azure nor Kubernetes contains anything of the cluster.
    fn expect_removed(&self) -> Result<(), Failed> {
        expect_equal("Azure", &self.azure_resources()?, &self.initial_azure)?;
        expect_equal("objects", self.object_versions()?, Vec::new())
    }
}

/// The kind and the result of each applied object.
fn results(summary: &Value) -> Vec<String> {
    let objects = summary["objects"].as_array().into_iter().flatten();
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    objects.map(|it| format!("{} {}", text(it, "kind"), text(it, "result"))).collect()
}
