//! Why the kernel will not produce a page of a mapping that allows the access: it is asked to, and its errno is read.

use std::fs;
use std::path::Path;

use pinrail_core::{Cause, Extent};

use crate::sys::{self, Advice};
use crate::{Region, Residency, hugetlb};

/// Has the kernel produce pages of a part of a mapping; the cause if it refuses one.
pub(crate) fn refused(region: &Region, part: Extent) -> Option<Cause> {
    if !sys::can_populate() {
        return None;
    }
    let page = sys::base_page();
    let (first, end) = sys::whole_pages(part);
    // A file ends once, so its last page answers for all; a pool that is empty shows in whatever is absent.
    let mut asked = vec![end - page];
    let found = &mut |gap: Extent| {
        if asked.len() == 1 {
            asked.push(gap.start() / page * page);
        }
    };
    // Where that cannot be told the last page is asked alone.
    Residency::new().absent(part, found).ok();
    let (address, errno) = asked.into_iter().find_map(|address| Some((address, ask(address)?)))?;
    let refuse = |address: u64, needs: &str| Cause::Protection {
        address: address.max(part.start()),
        protection: region.protection.clone(),
        needs: needs.to_owned(),
    };
    match errno {
        // The mapping is readable, so it is one whose pages the kernel pins for nobody (VM_IO, VM_PFNMAP, secret memory).
        libc::EINVAL => Some(refuse(first, "its pages belong to a device or the kernel, which are not registered by address")),
        libc::EHWPOISON => Some(Cause::Other { what: format!("the page at {address:#x} is broken (EHWPOISON)") }),
        libc::EFAULT => Some(
            hugetlb::exhausted(part)
                .or_else(|| file_system_gives_none(region, address))
                .unwrap_or_else(|| refuse(first_refused(first, address), "the file it shows ends before that address")),
        ),
        libc::ENOMEM => Some(Cause::Exhausted { what: format!("no memory for a page at {address:#x}") }),
        _ => None,
    }
}

fn ask(address: u64) -> Option<i32> {
    sys::advise(address, sys::base_page(), Advice::PopulateRead).err().and_then(|error| error.raw_os_error())
}

/// The first page that cannot be had, by halving: all before it can.
fn first_refused(first: u64, refused: u64) -> u64 {
    let page = sys::base_page();
    let (mut good, mut bad) = (first / page, refused / page);
    while good < bad {
        let middle = good.midpoint(bad);
        if ask(middle * page).is_some() {
            bad = middle;
        } else {
            good = middle + 1;
        }
    }
    bad * page
}

/// The page lies within the file, so its file system has no room for it: a small /dev/shm, most often.
fn file_system_gives_none(region: &Region, address: u64) -> Option<Cause> {
    let within = region.offset + (address - region.extent.start());
    let file = fs::metadata(&region.name).ok().filter(|file| file.len() > within)?;
    let room = sys::file_system(Path::new(&region.name)).ok()?;
    let free_bytes = room.f_bavail.saturating_mul(room.f_bsize.unsigned_abs());
    Some(Cause::Exhausted {
        what: format!(
            "{} has {} bytes, but its file system has {free_bytes} free and gives no page for address {address:#x}",
            region.name,
            file.len()
        ),
    })
}
