//! The published figures, as `fidelity` reads them.

use std::num::NonZeroU32;

use crate::fidelity::Promise;

/// A published figure and how ours comes about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) table: &'static str,
    pub(crate) what: &'static str,
    /// Several where it was repeated.
    pub(crate) published: &'static [f64],
    pub(crate) scenario: &'static str,
    pub(crate) settings: &'static [&'static str],
    pub(crate) policy: &'static str,
    /// So many threads prefault, where that is what was measured.
    pub(crate) prefault_by: Option<NonZeroU32>,
    pub(crate) look: Look,
    pub(crate) promise: Promise,
    /// Whether a figure of the (first) profile comes from it.
    pub(crate) fitted: bool,
    pub(crate) standing: &'static str,
}

/// What of a run is the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Register,
    Deregister,
    Total,
    /// CPU seconds.
    Cpu,
    /// The time of the first buffer, all of its rails.
    FirstBuffer,
    LastBuffer,
    /// The mean of so many last ones.
    MeanOfLast(usize),
}

/// What cells have in common.
const CELL: Cell = Cell {
    table: "",
    what: "",
    published: &[],
    scenario: "",
    settings: &[],
    policy: "",
    prefault_by: None,
    look: Look::Register,
    promise: Promise::None,
    fitted: false,
    standing: "",
};

/// Every figure that a profile is about. Promises are those of docs/SIMULATION.md.
pub(crate) const PUBLISHED: &[Cell] = &[
    Cell {
        table: "P1",
        what: "touched, register, NICs at once",
        published: &[11.662],
        scenario: "rdma-500g-touched",
        policy: "rails-in-parallel+unbounded+no-prefault",
        promise: Promise::Within(0.15),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P1",
        what: "touched, register, one after another",
        published: &[49.198],
        scenario: "rdma-500g-touched",
        policy: "rails-in-series+capped=1+no-prefault",
        promise: Promise::Within(0.15),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P1",
        what: "touched, unregister, at once",
        published: &[1.459],
        scenario: "rdma-500g-touched",
        policy: "rails-in-parallel+unbounded+no-prefault",
        look: Look::Deregister,
        promise: Promise::Within(0.15),
        ..CELL
    },
    Cell {
        table: "P1",
        what: "touched, unregister, one after another",
        published: &[11.754],
        scenario: "rdma-500g-touched",
        policy: "rails-in-series+capped=1+no-prefault",
        look: Look::Deregister,
        promise: Promise::Within(0.15),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P1",
        what: "untouched, register, at once",
        published: &[461.999],
        scenario: "rdma-500g-untouched",
        policy: "rails-in-parallel+unbounded+no-prefault",
        promise: Promise::Factor(3.0),
        fitted: true,
        standing: "a storm",
        ..CELL
    },
    Cell {
        table: "P1",
        what: "untouched, register, one after another",
        published: &[86.93],
        scenario: "rdma-500g-untouched",
        policy: "rails-in-series+capped=1+no-prefault",
        promise: Promise::Within(0.15),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P1",
        what: "untouched, unregister, at once",
        published: &[1.822],
        scenario: "rdma-500g-untouched",
        policy: "rails-in-parallel+unbounded+no-prefault",
        look: Look::Deregister,
        ..CELL
    },
    Cell {
        table: "P1",
        what: "untouched, unregister, one after another",
        published: &[11.498],
        scenario: "rdma-500g-untouched",
        policy: "rails-in-series+capped=1+no-prefault",
        look: Look::Deregister,
        promise: Promise::Within(0.15),
        ..CELL
    },
    Cell {
        table: "P2",
        what: "2.79 MB, nothing registered",
        published: &[0.07],
        scenario: "efa-serial-48x391",
        settings: &["batch=1x2925527"],
        policy: "all-rails+rails-in-series+capped=1",
        look: Look::FirstBuffer,
        promise: Promise::Within(0.15),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P2",
        what: "2.79 MB, 9.17 GiB registered",
        published: &[2.505],
        scenario: "efa-serial-48x391",
        settings: &["batch=24x409993216+1x2925527"],
        policy: "all-rails+rails-in-series+capped=1",
        look: Look::LastBuffer,
        promise: Promise::Within(0.15),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P2",
        what: "391 MB, 24 of them, mean",
        published: &[1.382],
        scenario: "efa-serial-48x391",
        settings: &["batch=24x409993216"],
        policy: "all-rails+rails-in-series+capped=1",
        look: Look::MeanOfLast(24),
        promise: Promise::Within(0.15),
        ..CELL
    },
    Cell {
        table: "P2",
        what: "391 MB, 24 after 0.06 GiB, mean",
        published: &[1.408],
        scenario: "efa-serial-order",
        policy: "all-rails+rails-in-series+ascending+capped=1",
        look: Look::MeanOfLast(24),
        promise: Promise::Within(0.15),
        ..CELL
    },
    Cell {
        table: "P2",
        what: "391 MB, first of 48",
        published: &[0.143],
        scenario: "efa-serial-48x391",
        policy: "all-rails+rails-in-series+capped=1",
        look: Look::FirstBuffer,
        promise: Promise::Within(0.15),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P2",
        what: "391 MB, last of 48",
        published: &[5.022],
        scenario: "efa-serial-48x391",
        policy: "all-rails+rails-in-series+capped=1",
        look: Look::LastBuffer,
        promise: Promise::Within(0.15),
        ..CELL
    },
    Cell {
        table: "P2",
        what: "24 small, 24 large, ascending",
        published: &[35.5],
        scenario: "efa-serial-order",
        policy: "all-rails+rails-in-series+ascending+capped=1",
        promise: Promise::Within(0.15),
        standing: "true of serial calls; retracted as an argument for sorting a batch (P4)",
        ..CELL
    },
    Cell {
        table: "P2",
        what: "24 small, 24 large, descending",
        published: &[93.3],
        scenario: "efa-serial-order",
        policy: "all-rails+rails-in-series+descending+capped=1",
        promise: Promise::Within(0.15),
        standing: "true of serial calls; retracted as an argument for sorting a batch (P4)",
        ..CELL
    },
    Cell {
        table: "P2",
        what: "host memory, 391 MB, first of 48",
        published: &[0.5, 0.6],
        scenario: "p5-host-128x2g",
        settings: &["batch=48x409993216"],
        policy: "all-rails+rails-in-series+capped=1+no-prefault",
        look: Look::FirstBuffer,
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P2",
        what: "host memory, 391 MB, last of 48",
        published: &[0.5, 0.6],
        scenario: "p5-host-128x2g",
        settings: &["batch=48x409993216"],
        policy: "all-rails+rails-in-series+capped=1+no-prefault",
        look: Look::LastBuffer,
        ..CELL
    },
    Cell {
        table: "P2",
        what: "host memory, 24 small, 24 large, ascending",
        published: &[14.0, 16.0],
        scenario: "p5-host-128x2g",
        settings: &["batch=24x2925527+24x409993216"],
        policy: "all-rails+rails-in-series+ascending+capped=1+no-prefault",
        ..CELL
    },
    Cell {
        table: "P2",
        what: "host memory, 24 small, 24 large, descending",
        published: &[14.0, 16.0],
        scenario: "p5-host-128x2g",
        settings: &["batch=24x2925527+24x409993216"],
        policy: "all-rails+rails-in-series+descending+capped=1+no-prefault",
        ..CELL
    },
    Cell {
        table: "P3",
        what: "32 NICs, no cap, descending",
        published: &[108.0, 99.0, 128.0],
        scenario: "p5-k3",
        policy: "all-rails+rails-in-series+descending+unbounded",
        promise: Promise::Within(0.25),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P3",
        what: "32 NICs, no cap, caller's order",
        published: &[112.0],
        scenario: "p5-k3",
        policy: "all-rails+rails-in-series+unbounded",
        promise: Promise::Within(0.25),
        fitted: true,
        standing: "the order is assumed",
        ..CELL
    },
    Cell {
        table: "P3",
        what: "32 NICs, no cap, ascending",
        published: &[120.0],
        scenario: "p5-k3",
        policy: "all-rails+rails-in-series+ascending+unbounded",
        promise: Promise::Within(0.25),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P3",
        what: "32 NICs, cap 64, descending",
        published: &[184.0, 208.0],
        scenario: "p5-k3",
        policy: "all-rails+rails-in-series+descending+capped=64",
        promise: Promise::Within(0.25),
        fitted: true,
        standing: "in conflict with P4",
        ..CELL
    },
    Cell {
        table: "P3",
        what: "32 NICs, cap 64, caller's order",
        published: &[101.0],
        scenario: "p5-k3",
        policy: "all-rails+rails-in-series+capped=64",
        promise: Promise::Within(0.25),
        fitted: true,
        standing: "in conflict with P4; the order is assumed",
        ..CELL
    },
    Cell {
        table: "P3",
        what: "32 NICs, cap 64, ascending",
        published: &[60.0],
        scenario: "p5-k3",
        policy: "all-rails+rails-in-series+ascending+capped=64",
        promise: Promise::Within(0.25),
        fitted: true,
        standing: "in conflict with P4",
        ..CELL
    },
    Cell {
        table: "P3",
        what: "32 NICs, cap 16, descending",
        published: &[95.0, 98.0, 97.0],
        scenario: "p5-k3",
        policy: "all-rails+rails-in-series+descending+capped=16",
        promise: Promise::Within(0.15),
        fitted: true,
        standing: "in conflict with P4",
        ..CELL
    },
    Cell {
        table: "P3",
        what: "32 NICs, cap 16, caller's order",
        published: &[43.0],
        scenario: "p5-k3",
        policy: "all-rails+rails-in-series+capped=16",
        promise: Promise::Within(0.15),
        fitted: true,
        standing: "in conflict with P4; the order is assumed",
        ..CELL
    },
    Cell {
        table: "P3",
        what: "32 NICs, cap 16, ascending",
        published: &[36.0, 37.0],
        scenario: "p5-k3",
        policy: "all-rails+rails-in-series+ascending+capped=16",
        promise: Promise::Within(0.15),
        fitted: true,
        standing: "in conflict with P4",
        ..CELL
    },
    Cell {
        table: "P3",
        what: "32 NICs, cap 8, descending",
        published: &[107.0],
        scenario: "p5-k3",
        policy: "all-rails+rails-in-series+descending+capped=8",
        promise: Promise::Within(0.15),
        fitted: true,
        standing: "in conflict with P4",
        ..CELL
    },
    Cell {
        table: "P3",
        what: "32 NICs, cap 8, ascending",
        published: &[44.0],
        scenario: "p5-k3",
        policy: "all-rails+rails-in-series+ascending+capped=8",
        promise: Promise::Within(0.15),
        fitted: true,
        standing: "in conflict with P4",
        ..CELL
    },
    Cell {
        table: "P3",
        what: "32 NICs, cap 4, descending",
        published: &[157.0],
        scenario: "p5-k3",
        policy: "all-rails+rails-in-series+descending+capped=4",
        promise: Promise::Within(0.15),
        fitted: true,
        standing: "in conflict with P4",
        ..CELL
    },
    Cell {
        table: "P3",
        what: "32 NICs, cap 16 (#3219)",
        published: &[35.0],
        scenario: "p5-k3",
        policy: "all-rails+rails-in-series+ascending+capped=16",
        promise: Promise::Within(0.25),
        standing: "if a sort was active, which is an inference",
        ..CELL
    },
    Cell {
        table: "P3",
        what: "4 NICs, cap 16 (#3219)",
        published: &[5.2],
        scenario: "p5-k3-local",
        policy: "rail-local+rails-in-series+ascending+capped=16",
        promise: Promise::Within(0.25),
        standing: "if a sort was active, which is an inference",
        ..CELL
    },
    Cell {
        table: "P3",
        what: "32 NICs, cap 16 (#3219), CPU",
        published: &[2981.0],
        scenario: "p5-k3",
        policy: "all-rails+rails-in-series+ascending+capped=16",
        look: Look::Cpu,
        standing: "would decide between the readings, if a sort was active",
        ..CELL
    },
    Cell {
        table: "P3",
        what: "4 NICs, cap 16 (#3219), CPU",
        published: &[394.0],
        scenario: "p5-k3-local",
        policy: "rail-local+rails-in-series+ascending+capped=16",
        look: Look::Cpu,
        standing: "as above",
        ..CELL
    },
    Cell {
        table: "P3",
        what: "48 x 391 MB, one thread, 32 NICs",
        published: &[123.7, 116.1],
        scenario: "efa-serial-48x391",
        policy: "all-rails+rails-in-series+capped=1",
        promise: Promise::Within(0.15),
        ..CELL
    },
    Cell {
        table: "P3",
        what: "48 x 391 MB, one thread, 4 NICs",
        published: &[17.6, 14.9],
        scenario: "efa-serial-48x391",
        settings: &["rails=4"],
        policy: "all-rails+rails-in-series+capped=1",
        promise: Promise::Within(0.15),
        ..CELL
    },
    Cell {
        table: "P3",
        what: "48 x 391 MB, one thread, 1 NIC",
        published: &[4.4],
        scenario: "efa-serial-48x391",
        settings: &["rails=1"],
        policy: "all-rails+rails-in-series+capped=1",
        promise: Promise::Within(0.15),
        ..CELL
    },
    Cell {
        table: "P5",
        what: "128 x 2 GiB host memory, no cap",
        published: &[274.0],
        scenario: "p5-host-128x2g",
        policy: "all-rails+rails-in-series+unbounded",
        promise: Promise::Within(0.15),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P5",
        what: "128 x 2 GiB host memory, cap 16",
        published: &[59.1],
        scenario: "p5-host-128x2g",
        policy: "all-rails+rails-in-series+capped=16",
        promise: Promise::Within(0.15),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "4 rails, untouched, one after another",
        published: &[2.03],
        scenario: "host32-rails",
        settings: &["rails=4"],
        policy: "rails-in-series+capped=1+no-prefault",
        look: Look::Total,
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "4 rails, untouched, at once",
        published: &[5.37],
        scenario: "host32-rails",
        settings: &["rails=4"],
        policy: "rails-in-parallel+unbounded+no-prefault",
        look: Look::Total,
        promise: Promise::Factor(3.0),
        fitted: true,
        standing: "a storm",
        ..CELL
    },
    Cell {
        table: "P8",
        what: "4 rails, prefault by 1, then at once",
        published: &[1.9],
        scenario: "host32-rails",
        settings: &["rails=4"],
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(1),
        look: Look::Total,
        promise: Promise::Within(0.25),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "4 rails, prefault by 2, then at once",
        published: &[1.02],
        scenario: "host32-rails",
        settings: &["rails=4"],
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(2),
        look: Look::Total,
        promise: Promise::Within(0.25),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "4 rails, prefault by 4, then at once",
        published: &[0.55],
        scenario: "host32-rails",
        settings: &["rails=4"],
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(4),
        look: Look::Total,
        promise: Promise::Within(0.25),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "4 rails, prefault by 8, then at once",
        published: &[0.64],
        scenario: "host32-rails",
        settings: &["rails=4"],
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(8),
        look: Look::Total,
        promise: Promise::Within(0.25),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "4 rails, prefault by 16, then at once",
        published: &[0.64],
        scenario: "host32-rails",
        settings: &["rails=4"],
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(16),
        look: Look::Total,
        promise: Promise::Factor(2.0),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "4 rails, prefault by 32, then at once",
        published: &[0.71],
        scenario: "host32-rails",
        settings: &["rails=4"],
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(32),
        look: Look::Total,
        promise: Promise::Factor(2.0),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, untouched, one after another",
        published: &[4.67],
        scenario: "host32-rails",
        settings: &["rails=32"],
        policy: "rails-in-series+capped=1+no-prefault",
        look: Look::Total,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, untouched, at once",
        published: &[6.79],
        scenario: "host32-rails",
        settings: &["rails=32"],
        policy: "rails-in-parallel+unbounded+no-prefault",
        look: Look::Total,
        promise: Promise::Factor(3.0),
        standing: "a storm",
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, prefault by 1, then at once",
        published: &[1.86],
        scenario: "host32-rails",
        settings: &["rails=32"],
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(1),
        look: Look::Total,
        promise: Promise::Within(0.25),
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, prefault by 2, then at once",
        published: &[1.04],
        scenario: "host32-rails",
        settings: &["rails=32"],
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(2),
        look: Look::Total,
        promise: Promise::Within(0.25),
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, prefault by 4, then at once",
        published: &[0.61],
        scenario: "host32-rails",
        settings: &["rails=32"],
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(4),
        look: Look::Total,
        promise: Promise::Within(0.25),
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, prefault by 8, then at once",
        published: &[0.69],
        scenario: "host32-rails",
        settings: &["rails=32"],
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(8),
        look: Look::Total,
        promise: Promise::Within(0.25),
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, prefault by 16, then at once",
        published: &[0.68],
        scenario: "host32-rails",
        settings: &["rails=32"],
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(16),
        look: Look::Total,
        promise: Promise::Factor(2.0),
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, prefault by 32, then at once",
        published: &[0.73],
        scenario: "host32-rails",
        settings: &["rails=32"],
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(32),
        look: Look::Total,
        promise: Promise::Factor(2.0),
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, 16 GiB resident, one after another",
        published: &[8.52],
        scenario: "host32-rails",
        settings: &["memory=resident", "batch=16x1GiB"],
        policy: "rails-in-series+capped=1+no-prefault",
        promise: Promise::Within(0.15),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, 16 GiB resident, at once",
        published: &[0.535],
        scenario: "host32-rails",
        settings: &["memory=resident", "batch=16x1GiB"],
        policy: "rails-in-parallel+unbounded+no-prefault",
        promise: Promise::Within(0.15),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, 16 GiB resident, unpin, one after another",
        published: &[1.9],
        scenario: "host32-rails",
        settings: &["memory=resident", "batch=16x1GiB"],
        policy: "rails-in-series+capped=1+no-prefault",
        look: Look::Deregister,
        promise: Promise::Within(0.15),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, 16 GiB resident, unpin, at once",
        published: &[0.113],
        scenario: "host32-rails",
        settings: &["memory=resident", "batch=16x1GiB"],
        policy: "rails-in-parallel+unbounded+no-prefault",
        look: Look::Deregister,
        promise: Promise::Within(0.15),
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, prefault by 1, then at once, CPU",
        published: &[4.9],
        scenario: "host32-rails",
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(1),
        look: Look::Cpu,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, prefault by 2, then at once, CPU",
        published: &[5.4],
        scenario: "host32-rails",
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(2),
        look: Look::Cpu,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, prefault by 4, then at once, CPU",
        published: &[5.8],
        scenario: "host32-rails",
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(4),
        look: Look::Cpu,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, prefault by 8, then at once, CPU",
        published: &[5.6],
        scenario: "host32-rails",
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(8),
        look: Look::Cpu,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, prefault by 16, then at once, CPU",
        published: &[5.1],
        scenario: "host32-rails",
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(16),
        look: Look::Cpu,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, prefault by 32, then at once, CPU",
        published: &[5.4],
        scenario: "host32-rails",
        policy: "rails-in-parallel+prefault",
        prefault_by: NonZeroU32::new(32),
        look: Look::Cpu,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, untouched, one after another, CPU",
        published: &[4.7],
        scenario: "host32-rails",
        policy: "rails-in-series+capped=1+no-prefault",
        look: Look::Cpu,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "32 rails, untouched, at once, CPU",
        published: &[32.3],
        scenario: "host32-rails",
        policy: "rails-in-parallel+unbounded+no-prefault",
        look: Look::Cpu,
        fitted: true,
        ..CELL
    },
    Cell {
        table: "P8",
        what: "cuMemHostRegister, 16 GiB resident, 1 thread",
        published: &[0.61, 0.71],
        scenario: "host32-rails",
        settings: &["profile=cuda-host", "machine=nic", "rails=1", "batch=16x1GiB", "memory=resident"],
        policy: "capped=1+no-prefault",
        fitted: true,
        standing: "does not scale",
        ..CELL
    },
    Cell {
        table: "P8",
        what: "cuMemHostRegister, 16 GiB resident, 16 threads",
        published: &[0.61, 0.71],
        scenario: "host32-rails",
        settings: &["profile=cuda-host", "machine=nic", "rails=1", "batch=16x1GiB", "memory=resident"],
        policy: "capped=16+no-prefault",
        standing: "does not scale",
        ..CELL
    },
    Cell {
        table: "P8",
        what: "cuMemHostRegister, 16 GiB untouched, 1 thread",
        published: &[4.5, 5.3],
        scenario: "host32-rails",
        settings: &["profile=cuda-host", "machine=nic", "rails=1", "batch=16x1GiB", "memory=untouched"],
        policy: "capped=1+no-prefault",
        fitted: true,
        standing: "does not scale",
        ..CELL
    },
    Cell {
        table: "P8",
        what: "cuMemHostRegister, 16 GiB untouched, 16 threads",
        published: &[4.5, 5.3],
        scenario: "host32-rails",
        settings: &["profile=cuda-host", "machine=nic", "rails=1", "batch=16x1GiB", "memory=untouched"],
        policy: "capped=16+no-prefault",
        standing: "does not scale",
        ..CELL
    },
];
