use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lanyard_api::SecretProviderClass;
use lanyard_clock::{Clock, ManualClock, RetryClass};
use lanyard_provider::{ClassError, RotationPolicy};
use lanyard_vocabulary::OutcomeCode;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::*;
use crate::reporter::{PodEvent, PodEventKind, StatusReportError, VolumeStatusUpdate};

/// In-memory volumes whose provider returns scripted outcomes.
#[derive(Debug)]
struct FakeRotatableVolumes {
    clock: ManualClock,
    volumes: Mutex<BTreeMap<PathBuf, RotationTarget>>,
    polls: Mutex<Vec<(PathBuf, Urgency, i64)>>,
    scrubs: Mutex<Vec<(PathBuf, i64)>>,
    failure: Mutex<Option<RetryClass>>,
    /// How long a poll takes.
    rotation_time: Duration,
    running: AtomicUsize,
    max_running: AtomicUsize,
}

#[async_trait]
impl RotatableVolumes for FakeRotatableVolumes {
    fn volumes(&self) -> Vec<RotationTarget> {
        self.volumes.lock().values().cloned().collect()
    }

    async fn rotate(&self, target: &Path, urgency: Urgency, last_attempt: Option<Timestamp>) {
        let began = self.clock.now();
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.max_running.fetch_max(running, Ordering::SeqCst);
        if !self.rotation_time.is_zero() {
            self.clock.sleep(self.rotation_time).await;
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
        let mut volumes = self.volumes.lock();
        let volume = volumes.get_mut(target).unwrap();
        assert_eq!(volume.history.last_attempt(), last_attempt);
        self.polls.lock().push((target.to_owned(), urgency, began.as_second()));
        match *self.failure.lock() {
            Some(retry) => volume.history.record_failure(began, retry),
            None => volume.history.record_success(began, &RotationPolicy::default(), []),
        }
    }

    async fn scrub(&self, target: &Path) -> Result<Option<Timestamp>, PublishError> {
        let now = self.clock.now();
        self.scrubs.lock().push((target.to_owned(), now.as_second()));
        Ok(None)
    }
}

/// An in-memory class source whose classes can be changed.
#[derive(Debug, Default)]
struct FakeRotationClasses(Mutex<Option<SecretProviderClass>>);

#[async_trait]
impl ClassSource for FakeRotationClasses {
    async fn class(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<SecretProviderClass>, ClassError> {
        self.0.lock().clone().map(Arc::new).ok_or_else(|| ClassError::NotFound {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

#[derive(Debug, Default)]
struct RotationEventRecorder(Mutex<Vec<PodEvent>>);

#[async_trait]
impl Reporter for RotationEventRecorder {
    async fn report_status(&self, _report: &VolumeStatusUpdate) -> Result<(), StatusReportError> {
        Ok(())
    }

    fn emit_event(&self, notice: PodEvent) {
        self.0.lock().push(notice);
    }

    fn forget_volume(&self, _target: &Path) {}
}

/// A node in virtual time.
struct RotatorFixture {
    clock: ManualClock,
    volumes: Arc<FakeRotatableVolumes>,
    classes: Arc<FakeRotationClasses>,
    reporter: Arc<RotationEventRecorder>,
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

const START: i64 = 1_000_000;

fn target(number: usize) -> PathBuf {
    format!("/pods/{number}").into()
}

fn volume(number: usize, checked: i64) -> RotationTarget {
    let mut clock = PollHistory::default();
    let checked = Timestamp::from_second(checked).unwrap();
    clock.record_success(checked, &RotationPolicy::default(), []);
    let pod = VolumePod {
        namespace: "clusters".to_owned(),
        name: format!("pod-{number}"),
        uid: number.to_string(),
        service_account: "default".to_owned(),
    };
    RotationTarget {
        volume_id: format!("csi-{number}"),
        target: target(number),
        pod,
        class_name: "managed-azure-cpo".to_owned(),
        history: clock,
        timestamps: BTreeMap::new(),
        pod_credentials: Some(PodCredentials::default()),
        generation: 1,
    }
}

fn class(annotations: &[(&str, &str)]) -> SecretProviderClass {
    let mut class = SecretProviderClass::default();
    class.spec.provider = Some("azure".to_owned());
    class.metadata.annotations =
        Some(annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
    class
}

impl RotatorFixture {
    async fn start(
        volumes: impl IntoIterator<Item = RotationTarget>,
        settings: RotatorSettings,
        takes: Duration,
    ) -> Self {
        Self::start_with_class(Some(class(&[])), volumes, settings, takes).await
    }

    async fn start_with_class(
        class: Option<SecretProviderClass>,
        volumes: impl IntoIterator<Item = RotationTarget>,
        settings: RotatorSettings,
        takes: Duration,
    ) -> Self {
        let clock = ManualClock::starting_at(Timestamp::from_second(START).unwrap());
        let volumes = volumes.into_iter().map(|it| (it.target.clone(), it)).collect();
        let store = Arc::new(FakeRotatableVolumes {
            clock: clock.clone(),
            volumes: Mutex::new(volumes),
            polls: Mutex::default(),
            scrubs: Mutex::default(),
            failure: Mutex::default(),
            rotation_time: takes,
            running: AtomicUsize::new(0),
            max_running: AtomicUsize::new(0),
        });
        let classes = Arc::new(FakeRotationClasses(Mutex::new(class)));
        let ears = Arc::new(RotationEventRecorder::default());
        let rotator = Rotator::new(
            Arc::<FakeRotatableVolumes>::clone(&store),
            Arc::<FakeRotationClasses>::clone(&classes),
            Arc::<RotationEventRecorder>::clone(&ears),
            Arc::new(clock.clone()),
            settings,
        );
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(rotator.run(async move {
            let _sent = stopped.await;
        }));
        let scene = Self { clock, volumes: store, classes, reporter: ears, stop: Some(stop), task };
        yield_until_idle().await;
        scene
    }

    async fn advance(&self, seconds: u64) {
        for _ in 0..seconds * 2 {
            self.clock.advance(Duration::from_millis(500));
            yield_until_idle().await;
        }
    }

    fn polls_of(&self, number: usize) -> Vec<(Urgency, i64)> {
        let polls = self.volumes.polls.lock();
        let target = target(number);
        polls.iter().filter(|it| it.0 == target).map(|(_, u, at)| (*u, at - START)).collect()
    }

    async fn shut_down(mut self) {
        drop(self.stop.take());
        self.task.await.unwrap();
    }
}

/// Lets every task run until it waits.
async fn yield_until_idle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

fn settings(interval: &str) -> RotatorSettings {
    RotatorSettings { interval: Some(interval.parse().unwrap()), ..RotatorSettings::default() }
}

#[tokio::test]
async fn every_volume_is_polled_once_per_interval_without_the_kubelet() {
    let volumes = (0..20).map(|number| volume(number, START));
    let scene = RotatorFixture::start(volumes, settings("2m"), Duration::ZERO).await;
    scene.advance(1_200).await;
    for number in 0..20 {
        let polls = scene.polls_of(number);
        assert!((9..=11).contains(&polls.len()), "{polls:?}");
        assert!(polls.iter().all(|(urgency, _)| *urgency == Urgency::Rotation));
        let times: Vec<_> = polls.iter().map(|(_, at)| *at).collect();
        assert!(
            times.windows(2).all(|pair| (108..=134).contains(&(pair[1] - pair[0]))),
            "{times:?}"
        );
    }
    scene.shut_down().await;
}

#[tokio::test]
async fn no_more_volumes_are_rotated_at_once_than_the_settings_say() {
    let volumes = (0..50).map(|number| volume(number, START - 10_000));
    let scene = RotatorFixture::start(volumes, settings("1h"), Duration::from_secs(3)).await;
    scene.advance(40).await;
    assert_eq!(scene.volumes.polls.lock().len(), 50);
    assert_eq!(
        scene.volumes.max_running.load(Ordering::SeqCst),
        RotatorSettings::DEFAULT_MAX_CONCURRENT.get()
    );
    scene.shut_down().await;
}

#[tokio::test]
async fn a_new_value_of_the_annotation_refreshes_every_volume_of_the_class_within_seconds() {
    let volumes = (0..10).map(|number| volume(number, START));
    let scene = RotatorFixture::start(volumes, settings("1h"), Duration::ZERO).await;
    scene.advance(60).await;
    assert_eq!(scene.volumes.polls.lock().len(), 0);
    *scene.classes.0.lock() = Some(class(&[(RotationPolicy::REFRESH, "now")]));
    scene.advance(10).await;
    for number in 0..10 {
        let polls = scene.polls_of(number);
        assert_eq!(
            polls.first().map(|(urgency, _)| *urgency),
            Some(Urgency::ForceRefresh),
            "{polls:?}"
        );
    }
    scene.shut_down().await;
}

#[tokio::test]
async fn the_interval_of_the_class_overrules_that_of_the_node() {
    let scene = RotatorFixture::start([volume(1, START)], settings("1h"), Duration::ZERO).await;
    *scene.classes.0.lock() = Some(class(&[(RotationPolicy::INTERVAL, "1m")]));
    scene.advance(200).await;
    assert_eq!(scene.polls_of(1).len(), 3);
    scene.shut_down().await;
}

#[tokio::test]
async fn invalid_interval_annotation_is_reported_once_and_the_node_interval_applies() {
    let volumes = [volume(1, START), volume(2, START)];
    let scene = RotatorFixture::start(volumes, settings("2m"), Duration::ZERO).await;
    *scene.classes.0.lock() = Some(class(&[(RotationPolicy::INTERVAL, "soon")]));
    scene.advance(140).await;
    let notices = scene.reporter.0.lock().clone();
    let [notice] = notices.as_slice() else { panic!("{notices:?}") };
    assert_eq!(notice.kind, PodEventKind::Failed(OutcomeCode::SecretProviderClassInvalid));
    for part in ["clusters/managed-azure-cpo", RotationPolicy::INTERVAL, "soon", "5m"] {
        assert!(notice.message.contains(part), "{}", notice.message);
    }
    assert_eq!(scene.polls_of(1).len(), 1);

    *scene.classes.0.lock() = Some(class(&[]));
    scene.advance(5).await;
    let last = scene.reporter.0.lock().last().map(|notice| notice.kind);
    assert_eq!(last, Some(PodEventKind::Recovered(OutcomeCode::SecretProviderClassInvalid)));
    scene.shut_down().await;
}

#[tokio::test]
async fn workload_identity_without_token_waits_and_reports_a_long_wait() {
    let restored = RotationTarget { pod_credentials: None, ..volume(1, START) };
    let scene = RotatorFixture::start([restored], settings("2m"), Duration::ZERO).await;
    scene.advance(400).await;
    assert_eq!(scene.polls_of(1), []);
    assert_eq!(scene.reporter.0.lock().len(), 0);
    scene.advance(60).await;
    let kinds: Vec<_> = scene.reporter.0.lock().iter().map(|notice| notice.kind).collect();
    assert_eq!(kinds, [PodEventKind::Failed(OutcomeCode::TokenNotFound)]);

    scene.volumes.volumes.lock().get_mut(&target(1)).unwrap().pod_credentials =
        Some(PodCredentials::default());
    scene.advance(5).await;
    assert_eq!(scene.polls_of(1).len(), 1);
    assert_eq!(scene.reporter.0.lock().len(), 2);
    scene.shut_down().await;
}

#[tokio::test]
async fn volume_with_unavailable_class_is_not_reported_as_missing_a_token() {
    let restored = RotationTarget { pod_credentials: None, ..volume(1, START) };
    let scene =
        RotatorFixture::start_with_class(None, [restored], settings("2m"), Duration::ZERO).await;
    scene.advance(460).await;
    let notices = scene.reporter.0.lock().clone();
    let [notice] = notices.as_slice() else { panic!("{notices:?}") };
    assert_eq!(notice.kind, PodEventKind::Failed(OutcomeCode::ClassSourceUnavailable));
    assert!(notice.message.contains("clusters/managed-azure-cpo"), "{}", notice.message);
    scene.shut_down().await;
}

#[tokio::test]
async fn expired_object_is_reported_until_a_newer_one_is_mounted() {
    let mut expired = volume(1, START);
    let end = Timestamp::from_second(START + 100).unwrap();
    let stamps = ObjectTimestamps { not_after: Some(end), ..ObjectTimestamps::default() };
    expired.timestamps.insert("secret/cpo".to_owned(), stamps);
    let scene = RotatorFixture::start([expired], settings("2m"), Duration::ZERO).await;
    scene.advance(95).await;
    assert_eq!(scene.reporter.0.lock().len(), 0);
    scene.advance(300).await;
    let notices = scene.reporter.0.lock().clone();
    let [notice] = notices.as_slice() else { panic!("{notices:?}") };
    assert_eq!(notice.kind, PodEventKind::Failed(OutcomeCode::ObjectExpired));
    assert!(notice.message.contains("secret/cpo"), "{}", notice.message);
    // The volume is polled every 30 s instead of every two minutes.
    assert!(scene.polls_of(1).len() >= 9, "{:?}", scene.polls_of(1));
    scene.shut_down().await;
}

#[tokio::test]
async fn failures_back_off_and_the_volume_recovers_within_an_interval_of_their_end() {
    let scene = RotatorFixture::start([volume(1, START)], settings("2m"), Duration::ZERO).await;
    *scene.volumes.failure.lock() = Some(RetryClass::Transient);
    scene.advance(1_000).await;
    let failed = scene.polls_of(1).len();
    assert!((8..=13).contains(&failed), "{:?}", scene.polls_of(1));
    *scene.volumes.failure.lock() = None;
    scene.advance(146).await;
    assert!(scene.volumes.volumes.lock()[&target(1)].history.failure_count() == 0);
    scene.shut_down().await;
}

#[tokio::test]
async fn retired_generations_are_scrubbed_after_their_grace_and_after_a_restart_at_once() {
    let off = RotatorSettings { interval: None, ..RotatorSettings::default() };
    let scene = RotatorFixture::start([volume(1, START)], off, Duration::ZERO).await;
    scene.advance(100).await;
    assert_eq!(*scene.volumes.scrubs.lock(), [(target(1), START)]);
    scene.volumes.volumes.lock().get_mut(&target(1)).unwrap().generation = 2;
    scene.advance(60).await;
    assert_eq!(scene.volumes.scrubs.lock().len(), 1);
    scene.advance(5).await;
    assert_eq!(scene.volumes.scrubs.lock().len(), 2);
    assert_eq!(scene.volumes.polls.lock().len(), 0, "the node does not rotate");
    scene.shut_down().await;
}

#[tokio::test]
async fn stop_finishes_running_rotations_and_starts_no_new_ones() {
    let volumes = (0..20).map(|number| volume(number, START - 10_000));
    let mut scene = RotatorFixture::start(volumes, settings("1h"), Duration::from_secs(10)).await;
    scene.advance(1).await;
    let running = scene.volumes.running.load(Ordering::SeqCst);
    assert_eq!(running, RotatorSettings::DEFAULT_MAX_CONCURRENT.get());
    drop(scene.stop.take());
    scene.advance(30).await;
    assert_eq!(scene.volumes.polls.lock().len(), running);
    assert!(scene.task.is_finished());
    scene.shut_down().await;
}
