//! The server of a kubeconfig, which has the controllers of Kubernetes behind it: those of
//! deployments, namespaces, nodes and garbage are the real ones.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use lanyard_cluster::{ControlPlane, ControlPlaneOptions};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::running::Running;
use super::{Ended, Scene, Stage, blamed, expect, expect_all_good, trial};
use crate::daemon::Daemon;
use crate::kubectl::Kubectl;
use crate::suites::chain;

pub(super) fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    vec![
        trial("up::given::all_that_was_made_is_removed", stage, removed),
        trial("up::given::what_others_made_is_never_touched", stage, untouched),
        trial("up::given::a_cluster_of_the_same_name_is_an_error", stage, taken),
        trial("up::given::ctrl_c_in_the_middle_removes_all", stage, interrupted),
        trial("up::given::a_pod_that_is_denied_delays_nobody_and_says_why", stage, denied),
    ]
}

/// An API server with its controllers.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) kubectl: Kubectl,
    pub(super) kubeconfig: String,
    /// Ends before the server.
    _controllers: Daemon,
    _plane: ControlPlane,
}

impl Given {
    pub(super) async fn start(scene: &Scene<'_>) -> Result<Self, Failed> {
        let programs = &scene.stage.programs;
        let options =
            ControlPlaneOptions::new(programs.join("etcd"), programs.join("kube-apiserver"));
        let plane = ControlPlane::start(options).await.map_err(chain)?;
        let kubeconfig = plane.kubeconfig(ControlPlane::ADMINISTRATOR);
        let key = plane.directory().join("service-account.key");
        let mut controllers = Command::new(programs.join("kube-controller-manager"));
        controllers.arg("--kubeconfig").arg(&kubeconfig);
        controllers.arg("--service-account-private-key-file").arg(key);
        controllers.args(["--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0"]);
        let place = scene.beside.path();
        let controllers = Daemon::start("controllers", &mut controllers, place).map_err(chain)?;
        let kubectl = Kubectl::new(&programs.join("kubectl"), &kubeconfig);
        // They work when they have made what every namespace has.
        let account = ["serviceaccount/default", "--namespace=default"];
        let made = kubectl.await_object("the controllers", PATIENCE, &account, |_| true).await;
        drop(made.map_err(chain)?);
        let kubeconfig = kubeconfig.display().to_string();
        Ok(Self { kubectl, kubeconfig, _controllers: controllers, _plane: plane })
    }

    /// Everything that `up` could have made.
    pub(super) fn all(&self) -> Result<String, Failed> {
        let kinds = "customresourcedefinitions,namespaces,nodes";
        self.kubectl.run(&["get", kinds, "--output=name"]).map_err(chain)
    }

    /// Makes every definition and the namespace, as another manager would.
    pub(super) fn define(&self, scene: &Scene<'_>) -> Result<(), Failed> {
        let definitions = scene.stage.repository.join("charts/lanyard-operator/files/crds");
        self.kubectl.found("clusters", &definitions.display().to_string()).map_err(chain)
    }

    /// Makes a HostedCluster of a file, and returns it. A definition is served a moment after it is
    /// made.
    pub(super) async fn make(&self, name: &str, file: &str) -> Result<Value, Failed> {
        let served = ["customresourcedefinition/hostedclusters.hypershift.openshift.io"];
        let is_made = |_: &Value| self.kubectl.run(&["apply", "--filename", file]).is_ok();
        let made = self.kubectl.await_object("a cluster", PATIENCE, &served, is_made).await;
        drop(made.map_err(chain)?);
        self.cluster(name)
    }

    /// Makes somebody else's HostedCluster, which nobody looks after just now.
    pub(super) async fn make_pier(&self, scene: &Scene<'_>) -> Result<Value, Failed> {
        let text = std::fs::read_to_string(&scene.stage.hosted_cluster).map_err(chain)?;
        let file = scene.beside.path().join("pier.yaml");
        let text = text.replacen("name: harbour\n", "name: pier\n", 1);
        std::fs::write(&file, text).map_err(chain)?;
        self.make("pier", &file.display().to_string()).await
    }

    pub(super) fn cluster(&self, name: &str) -> Result<Value, Failed> {
        let name = format!("hostedcluster/{name}");
        self.kubectl.read(&[&name, "--namespace=clusters"]).map_err(chain)
    }

    pub(super) fn once<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let mut arguments = vec!["--kubeconfig", &self.kubeconfig, "--once", "--output", "json"];
        arguments.extend(more);
        arguments
    }
}

async fn removed(scene: &Scene<'_>) -> Result<(), Failed> {
    let given = Given::start(scene).await?;
    let before = given.all()?;
    let ended = Ended::of(scene.up(&given.once(&[])))?;
    ended.expect_code(0)?;
    let report = ended.report()?;
    expect_all_good(&report)?;
    expect(report["server"]["own"] == false, || report["server"].to_string())?;
    let after = given.all()?;
    expect(before == after, || format!("before:\n{before}\nafter:\n{after}"))
}

async fn untouched(scene: &Scene<'_>) -> Result<(), Failed> {
    let given = Given::start(scene).await?;
    given.define(scene)?;
    let pier = given.make_pier(scene).await?;
    let definitions = [
        "secretproviderclasses.secrets-store.csi.x-k8s.io",
        "hostedclusters.hypershift.openshift.io",
    ];
    let names = definitions.map(|name| format!("customresourcedefinition/{name}"));
    let names = names.iter().map(String::as_str).chain(["namespace/clusters"]);
    let identity = |object: &Value| {
        let metadata = &object["metadata"];
        json!([metadata["uid"], metadata["generation"], metadata["labels"]])
    };
    let read = |name: &str| given.kubectl.read(&[name]).map(|it| identity(&it)).map_err(chain);
    let before: Vec<_> =
        names.map(|name| Ok((name, read(name)?))).collect::<Result<_, Failed>>()?;
    let all = given.all()?;
    let ended = Ended::of(scene.up(&given.once(&[])))?;
    ended.expect_code(0)?;
    expect_all_good(&ended.report()?)?;
    for (name, before) in before {
        let after = read(name)?;
        expect(before == after, || format!("{name}: {before} became {after}"))?;
    }
    let after = given.cluster("pier")?;
    expect(pier == after, || format!("{pier:#}\nbecame\n{after:#}"))?;
    let after = given.all()?;
    expect(all == after, || format!("before:\n{all}\nafter:\n{after}"))
}

async fn taken(scene: &Scene<'_>) -> Result<(), Failed> {
    let given = Given::start(scene).await?;
    given.define(scene)?;
    let file = scene.stage.hosted_cluster.display().to_string();
    let before = given.make("harbour", &file).await?;
    let ended = Ended::of(scene.up(&given.once(&[])))?;
    ended.expect_code(2)?;
    let told = "there is a HostedCluster clusters/harbour on https://127.0.0.1";
    expect(ended.stderr.contains(told), || format!("{ended:#?}"))?;
    let after = given.cluster("harbour")?;
    expect(before == after, || format!("{before:#}\nbecame\n{after:#}"))
}

async fn interrupted(scene: &Scene<'_>) -> Result<(), Failed> {
    let given = Given::start(scene).await?;
    let before = given.all()?;
    let log = scene.beside.path().join("up.log");
    let mut running = Running::start(scene.up(&given.once(&[])), &log)?;
    let pods = || given.kubectl.run(&["get", "pods", "--all-namespaces", "--output=name"]);
    running.until("a pod", |_| pods().is_ok_and(|pods| !pods.is_empty())).await?;
    let code = running.interrupt().await?;
    expect(code == Some(1), || format!("it ended with {code:?}"))?;
    let after = given.all()?;
    expect(before == after, || format!("before:\n{before}\nafter:\n{after}"))
}

async fn denied(scene: &Scene<'_>) -> Result<(), Failed> {
    let given = Given::start(scene).await?;
    let why = "nobody makes such a pod here";
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "denied"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
            ]},
            "validations": [
                {"expression": "!object.metadata.name.startsWith('ingress-')", "message": why},
            ],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "denied"},
        "spec": {"policyName": "denied", "validationActions": ["Deny"]},
    });
    let both = json!({"apiVersion": "v1", "kind": "List", "items": [policy, binding]});
    given.kubectl.apply(&both).map_err(chain)?;
    // A policy is in force a moment after it is made.
    let attempt = ["run", "ingress-x", "--image=x", "--dry-run=server"];
    let is_denied =
        |_: &Value| given.kubectl.run(&attempt).is_err_and(|error| error.to_string().contains(why));
    let made = ["validatingadmissionpolicybinding/denied"];
    let made = given.kubectl.await_object("the policy", PATIENCE, &made, is_denied).await;
    drop(made.map_err(chain)?);

    let ended = Ended::of(scene.up(&given.once(&[])))?;
    ended.expect_code(1)?;
    let rows = blamed(&ended.report()?)?;
    let failed: Vec<_> = rows.iter().filter(|(_, failed)| failed.is_some()).collect();
    let expected = ("ingress".to_owned(), Some("volume".to_owned()));
    expect(rows.len() == 9 && failed == [&expected], || format!("{rows:?}"))?;
    expect(ended.stdout.contains(why), || format!("{why} is not in {}", ended.stdout))
}

pub(super) const PATIENCE: Duration = Duration::from_secs(20);
