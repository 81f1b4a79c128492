use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lanyard_api::SecretProviderClass;
use lanyard_clock::{Clock, ManualClock};
use lanyard_keyvault::RetryClass;
use lanyard_vocabulary::OutcomeCode;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::*;
use crate::classes::ClassError;
use crate::reporter::{Notice, NoticeKind, ReportError, VolumeReport};
use crate::rotation::ClassWishes;

/// Volumes in memory, whose provider answers as it is told.
#[derive(Debug)]
struct Shelf {
    clock: ManualClock,
    volumes: Mutex<BTreeMap<PathBuf, RotatingVolume>>,
    looks: Mutex<Vec<(PathBuf, Urgency, i64)>>,
    scrubs: Mutex<Vec<(PathBuf, i64)>>,
    retry: Mutex<Option<RetryClass>>,
    /// How long a look takes.
    takes: Duration,
    running: AtomicUsize,
    most_running: AtomicUsize,
}

#[async_trait]
impl Volumes for Shelf {
    fn volumes(&self) -> Vec<RotatingVolume> {
        self.volumes.lock().values().cloned().collect()
    }

    async fn rotate(&self, target: &Path, urgency: Urgency, looked: Option<Timestamp>) {
        let began = self.clock.now();
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_running.fetch_max(running, Ordering::SeqCst);
        if !self.takes.is_zero() {
            self.clock.sleep(self.takes).await;
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
        let mut volumes = self.volumes.lock();
        let volume = volumes.get_mut(target).unwrap();
        assert_eq!(volume.clock.looked(), looked);
        self.looks.lock().push((target.to_owned(), urgency, began.as_second()));
        match *self.retry.lock() {
            Some(retry) => volume.clock.failed(began, retry),
            None => volume.clock.succeeded(began, &ClassWishes::default(), []),
        }
    }

    async fn scrub(&self, target: &Path) -> Result<Option<Timestamp>, PublishError> {
        let now = self.clock.now();
        self.scrubs.lock().push((target.to_owned(), now.as_second()));
        Ok(None)
    }
}

/// Classes that can be changed.
#[derive(Debug, Default)]
struct Classes(Mutex<Option<SecretProviderClass>>);

#[async_trait]
impl ClassSource for Classes {
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
struct Ears(Mutex<Vec<Notice>>);

#[async_trait]
impl Reporter for Ears {
    async fn report(&self, _report: &VolumeReport) -> Result<(), ReportError> {
        Ok(())
    }

    fn tell(&self, notice: Notice) {
        self.0.lock().push(notice);
    }

    fn forget(&self, _target: &Path) {}
}

/// A node in virtual time.
struct Scene {
    clock: ManualClock,
    shelf: Arc<Shelf>,
    classes: Arc<Classes>,
    ears: Arc<Ears>,
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

const START: i64 = 1_000_000;

fn target(number: usize) -> PathBuf {
    format!("/pods/{number}").into()
}

fn volume(number: usize, checked: i64) -> RotatingVolume {
    let mut clock = VolumeClock::default();
    let checked = Timestamp::from_second(checked).unwrap();
    clock.succeeded(checked, &ClassWishes::default(), []);
    let pod = Pod {
        namespace: "clusters".to_owned(),
        name: format!("pod-{number}"),
        uid: number.to_string(),
        service_account: "default".to_owned(),
    };
    RotatingVolume {
        volume_id: format!("csi-{number}"),
        target: target(number),
        pod,
        class_name: "managed-azure-cpo".to_owned(),
        clock,
        stamps: BTreeMap::new(),
        proofs: Some(Proofs::default()),
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

impl Scene {
    async fn open(
        volumes: impl IntoIterator<Item = RotatingVolume>,
        settings: RotatorSettings,
        takes: Duration,
    ) -> Self {
        Self::open_with(Some(class(&[])), volumes, settings, takes).await
    }

    async fn open_with(
        class: Option<SecretProviderClass>,
        volumes: impl IntoIterator<Item = RotatingVolume>,
        settings: RotatorSettings,
        takes: Duration,
    ) -> Self {
        let clock = ManualClock::starting_at(Timestamp::from_second(START).unwrap());
        let volumes = volumes.into_iter().map(|it| (it.target.clone(), it)).collect();
        let shelf = Arc::new(Shelf {
            clock: clock.clone(),
            volumes: Mutex::new(volumes),
            looks: Mutex::default(),
            scrubs: Mutex::default(),
            retry: Mutex::default(),
            takes,
            running: AtomicUsize::new(0),
            most_running: AtomicUsize::new(0),
        });
        let classes = Arc::new(Classes(Mutex::new(class)));
        let ears = Arc::new(Ears::default());
        let rotator = Rotator::new(
            Arc::<Shelf>::clone(&shelf),
            Arc::<Classes>::clone(&classes),
            Arc::<Ears>::clone(&ears),
            Arc::new(clock.clone()),
            settings,
        );
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(rotator.run(async move {
            let _sent = stopped.await;
        }));
        let scene = Self { clock, shelf, classes, ears, stop: Some(stop), task };
        settle().await;
        scene
    }

    async fn pass(&self, seconds: u64) {
        for _ in 0..seconds * 2 {
            self.clock.advance(Duration::from_millis(500));
            settle().await;
        }
    }

    fn looks_at(&self, number: usize) -> Vec<(Urgency, i64)> {
        let looks = self.shelf.looks.lock();
        let target = target(number);
        looks.iter().filter(|it| it.0 == target).map(|(_, u, at)| (*u, at - START)).collect()
    }

    async fn end(mut self) {
        drop(self.stop.take());
        self.task.await.unwrap();
    }
}

/// Lets every task come to rest.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

fn settings(interval: &str) -> RotatorSettings {
    RotatorSettings { interval: Some(interval.parse().unwrap()), ..RotatorSettings::default() }
}

#[tokio::test]
async fn every_volume_is_looked_at_once_in_an_interval_without_the_kubelet() {
    let volumes = (0..20).map(|number| volume(number, START));
    let scene = Scene::open(volumes, settings("2m"), Duration::ZERO).await;
    scene.pass(1_200).await;
    for number in 0..20 {
        let looks = scene.looks_at(number);
        assert!((9..=11).contains(&looks.len()), "{looks:?}");
        assert!(looks.iter().all(|(urgency, _)| *urgency == Urgency::Rotation));
        let times: Vec<_> = looks.iter().map(|(_, at)| *at).collect();
        assert!(
            times.windows(2).all(|pair| (108..=134).contains(&(pair[1] - pair[0]))),
            "{times:?}"
        );
    }
    scene.end().await;
}

#[tokio::test]
async fn no_more_volumes_are_rotated_at_once_than_the_settings_say() {
    let volumes = (0..50).map(|number| volume(number, START - 10_000));
    let scene = Scene::open(volumes, settings("1h"), Duration::from_secs(3)).await;
    scene.pass(40).await;
    assert_eq!(scene.shelf.looks.lock().len(), 50);
    assert_eq!(scene.shelf.most_running.load(Ordering::SeqCst), RotatorSettings::AT_ONCE.get());
    scene.end().await;
}

#[tokio::test]
async fn a_new_value_of_the_annotation_refreshes_every_volume_of_the_class_within_seconds() {
    let volumes = (0..10).map(|number| volume(number, START));
    let scene = Scene::open(volumes, settings("1h"), Duration::ZERO).await;
    scene.pass(60).await;
    assert_eq!(scene.shelf.looks.lock().len(), 0);
    *scene.classes.0.lock() = Some(class(&[(ClassWishes::REFRESH, "now")]));
    scene.pass(10).await;
    for number in 0..10 {
        let looks = scene.looks_at(number);
        assert_eq!(looks.first().map(|(urgency, _)| *urgency), Some(Urgency::Refresh), "{looks:?}");
    }
    scene.end().await;
}

#[tokio::test]
async fn the_interval_of_the_class_overrules_that_of_the_node() {
    let scene = Scene::open([volume(1, START)], settings("1h"), Duration::ZERO).await;
    *scene.classes.0.lock() = Some(class(&[(ClassWishes::INTERVAL, "1m")]));
    scene.pass(200).await;
    assert_eq!(scene.looks_at(1).len(), 3);
    scene.end().await;
}

#[tokio::test]
async fn an_interval_that_cannot_be_read_is_told_once_and_the_nodes_own_is_kept() {
    let volumes = [volume(1, START), volume(2, START)];
    let scene = Scene::open(volumes, settings("2m"), Duration::ZERO).await;
    *scene.classes.0.lock() = Some(class(&[(ClassWishes::INTERVAL, "soon")]));
    scene.pass(140).await;
    let notices = scene.ears.0.lock().clone();
    let [notice] = notices.as_slice() else { panic!("{notices:?}") };
    assert_eq!(notice.kind, NoticeKind::Failed(OutcomeCode::SecretProviderClassInvalid));
    for part in ["clusters/managed-azure-cpo", ClassWishes::INTERVAL, "soon", "5m"] {
        assert!(notice.message.contains(part), "{}", notice.message);
    }
    assert_eq!(scene.looks_at(1).len(), 1);

    *scene.classes.0.lock() = Some(class(&[]));
    scene.pass(5).await;
    let last = scene.ears.0.lock().last().map(|notice| notice.kind);
    assert_eq!(last, Some(NoticeKind::Recovered(OutcomeCode::SecretProviderClassInvalid)));
    scene.end().await;
}

#[tokio::test]
async fn a_workload_identity_without_a_token_waits_for_the_kubelet_and_tells_when_it_waits_long() {
    let restored = RotatingVolume { proofs: None, ..volume(1, START) };
    let scene = Scene::open([restored], settings("2m"), Duration::ZERO).await;
    scene.pass(400).await;
    assert_eq!(scene.looks_at(1), []);
    assert_eq!(scene.ears.0.lock().len(), 0);
    scene.pass(60).await;
    let kinds: Vec<_> = scene.ears.0.lock().iter().map(|notice| notice.kind).collect();
    assert_eq!(kinds, [NoticeKind::Failed(OutcomeCode::TokenNotFound)]);

    scene.shelf.volumes.lock().get_mut(&target(1)).unwrap().proofs = Some(Proofs::default());
    scene.pass(5).await;
    assert_eq!(scene.looks_at(1).len(), 1);
    assert_eq!(scene.ears.0.lock().len(), 2);
    scene.end().await;
}

#[tokio::test]
async fn a_volume_whose_class_is_not_to_be_had_is_not_told_to_lack_a_token() {
    let restored = RotatingVolume { proofs: None, ..volume(1, START) };
    let scene = Scene::open_with(None, [restored], settings("2m"), Duration::ZERO).await;
    scene.pass(460).await;
    let notices = scene.ears.0.lock().clone();
    let [notice] = notices.as_slice() else { panic!("{notices:?}") };
    assert_eq!(notice.kind, NoticeKind::Failed(OutcomeCode::ClassSourceUnavailable));
    assert!(notice.message.contains("clusters/managed-azure-cpo"), "{}", notice.message);
    scene.end().await;
}

#[tokio::test]
async fn what_is_past_its_end_is_told_until_something_newer_is_mounted() {
    let mut expired = volume(1, START);
    let end = Timestamp::from_second(START + 100).unwrap();
    let stamps = Stamps { not_after: Some(end), ..Stamps::default() };
    expired.stamps.insert("secret/cpo".to_owned(), stamps);
    let scene = Scene::open([expired], settings("2m"), Duration::ZERO).await;
    scene.pass(95).await;
    assert_eq!(scene.ears.0.lock().len(), 0);
    scene.pass(300).await;
    let notices = scene.ears.0.lock().clone();
    let [notice] = notices.as_slice() else { panic!("{notices:?}") };
    assert_eq!(notice.kind, NoticeKind::Failed(OutcomeCode::ObjectExpired));
    assert!(notice.message.contains("secret/cpo"), "{}", notice.message);
    // Every 30 s instead of every two minutes.
    assert!(scene.looks_at(1).len() >= 9, "{:?}", scene.looks_at(1));
    scene.end().await;
}

#[tokio::test]
async fn failures_back_off_and_the_volume_recovers_within_an_interval_of_their_end() {
    let scene = Scene::open([volume(1, START)], settings("2m"), Duration::ZERO).await;
    *scene.shelf.retry.lock() = Some(RetryClass::Transient);
    scene.pass(1_000).await;
    let failed = scene.looks_at(1).len();
    assert!((8..=13).contains(&failed), "{:?}", scene.looks_at(1));
    *scene.shelf.retry.lock() = None;
    scene.pass(146).await;
    assert!(scene.shelf.volumes.lock()[&target(1)].clock.failures() == 0);
    scene.end().await;
}

#[tokio::test]
async fn retired_generations_are_scrubbed_after_their_grace_and_after_a_restart_at_once() {
    let off = RotatorSettings { interval: None, ..RotatorSettings::default() };
    let scene = Scene::open([volume(1, START)], off, Duration::ZERO).await;
    scene.pass(100).await;
    assert_eq!(*scene.shelf.scrubs.lock(), [(target(1), START)]);
    scene.shelf.volumes.lock().get_mut(&target(1)).unwrap().generation = 2;
    scene.pass(60).await;
    assert_eq!(scene.shelf.scrubs.lock().len(), 1);
    scene.pass(5).await;
    assert_eq!(scene.shelf.scrubs.lock().len(), 2);
    assert_eq!(scene.shelf.looks.lock().len(), 0, "the node does not rotate");
    scene.end().await;
}

#[tokio::test]
async fn what_has_begun_is_brought_to_its_end_and_nothing_new_begins() {
    let volumes = (0..20).map(|number| volume(number, START - 10_000));
    let mut scene = Scene::open(volumes, settings("1h"), Duration::from_secs(10)).await;
    scene.pass(1).await;
    let running = scene.shelf.running.load(Ordering::SeqCst);
    assert_eq!(running, RotatorSettings::AT_ONCE.get());
    drop(scene.stop.take());
    scene.pass(30).await;
    assert_eq!(scene.shelf.looks.lock().len(), running);
    assert!(scene.task.is_finished());
    scene.end().await;
}
