//! The cost of one operation with 10, 1,000 and 100,000 secrets, role assignments and resources, which the
//! local Azure also writes to its state directory.

use std::path::Path;

use libtest_mimic::Failed;

use super::https_connection::{HttpVersion, HttpsTarget};
use super::load_generator::{LoadShape, RequestSource, measure_load};
use super::server_process::{LanyardServer, StateStorage};
use super::stored_objects::BenchmarkObjects;
use super::{AzureBenchmarkInputs, AzureMeasurements, LANYARD_SUBJECT, print_progress};

/// The numbers of objects, in ascending order. A smaller run stops early.
const OBJECT_COUNTS: [usize; 3] = [10, 1_000, 100_000];

/// The number of connections of a load.
const CONNECTIONS: usize = 4;

/// A measured operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MeasuredOperation {
    GetSecret,
    ListSecrets,
    /// `PUT` and `DELETE` in turn.
    AssignRole,
    GetResource,
}

impl MeasuredOperation {
    const ALL: [Self; 4] =
        [Self::GetSecret, Self::ListSecrets, Self::AssignRole, Self::GetResource];

    const fn name(self) -> &'static str {
        match self {
            Self::GetSecret => "get_secret",
            Self::ListSecrets => "list_secrets",
            Self::AssignRole => "assign_role",
            Self::GetResource => "get_resource",
        }
    }

    /// The target and the requests of this operation among `count` objects.
    async fn load(
        self,
        objects: &BenchmarkObjects,
        count: usize,
    ) -> Result<(HttpsTarget, RequestSource), Failed> {
        let (vault, arm) = (objects.vault.clone(), objects.arm().clone());
        Ok(match self {
            Self::GetSecret => (vault, objects.get_secrets(count)?),
            Self::ListSecrets => (vault, objects.list_secrets().await?),
            Self::AssignRole => (arm, objects.put_and_delete_assignments(CONNECTIONS)?),
            Self::GetResource => (arm, objects.get_identities(count)?),
        })
    }
}

pub(super) async fn measure_object_counts(
    inputs: &AzureBenchmarkInputs,
    directory: &Path,
) -> Result<AzureMeasurements, Failed> {
    let mut results = AzureMeasurements::default();
    let state = directory.join("state");
    let server = LanyardServer::start(
        &inputs.lanyard_program,
        &inputs.hosted_cluster,
        StateStorage::Directory(&state),
        directory,
    )?;
    let objects = BenchmarkObjects::create(&server).await?;
    let mut stored = 0;
    let mut costs: Vec<(MeasuredOperation, usize, f64)> = Vec::new();
    for count in OBJECT_COUNTS {
        // A smaller run measures fewer objects under the same names.
        let wanted = count.min(inputs.scale.objects);
        objects.add_secrets(stored..wanted).await?;
        objects.add_assignments(stored..wanted).await?;
        objects.add_identities(stored..wanted).await?;
        stored = wanted;
        print_progress(&format!("{stored} objects of each kind, {:?}", server.process.memory()?));
        for operation in MeasuredOperation::ALL {
            let cost = measure_cost(inputs, &server, operation, &objects, stored).await?;
            results.add(LANYARD_SUBJECT, &format!("{}_{count}", operation.name()), "µs", cost);
            costs.push((operation, count, cost));
        }
    }
    for operation in MeasuredOperation::ALL {
        let cost = |wanted: usize| {
            let found =
                costs.iter().find(|(other, count, _)| (*other, *count) == (operation, wanted));
            found.map_or(f64::NAN, |(.., cost)| *cost)
        };
        let [few, _, many] = OBJECT_COUNTS.map(cost);
        results.add(LANYARD_SUBJECT, &format!("{}_growth", operation.name()), "times", many / few);
    }
    Ok(results)
}

/// The server's processor time for one request, in microseconds: the best of several rounds.
async fn measure_cost(
    inputs: &AzureBenchmarkInputs,
    server: &LanyardServer,
    operation: MeasuredOperation,
    objects: &BenchmarkObjects,
    count: usize,
) -> Result<f64, Failed> {
    let shape = LoadShape {
        version: HttpVersion::Http1,
        connections: CONNECTIONS,
        warm_up: inputs.scale.warm_up,
        window: inputs.scale.window,
    };
    let (target, source) = operation.load(objects, count).await?;
    let mut best = f64::INFINITY;
    for _ in 0..inputs.scale.rounds {
        let found = measure_load(&target, shape, &source, server.process.pid()).await?;
        best = best.min(found.server_time);
    }
    Ok(best)
}
