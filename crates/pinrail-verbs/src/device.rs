//! The devices there are, and which of them a rail means.

use std::ffi::CStr;
use std::path::Path;
use std::ptr::NonNull;

use pinrail_core::Rail;
use rdma_sys as sys;

use crate::{OpenError, ffi, sysfs};

/// The devices libibverbs has a provider for, none of them opened.
pub(crate) struct Devices {
    first: NonNull<*mut sys::ibv_device>,
    len: usize,
}

impl Devices {
    pub(crate) fn list() -> Result<Devices, OpenError> {
        let mut len = 0;
        // SAFETY: `len` is valid for one result.
        let first = NonNull::new(unsafe { sys::ibv_get_device_list(&raw mut len) });
        let first = first.ok_or_else(|| OpenError::NoVerbs { errno: ffi::errno() })?;
        Ok(Devices { first, len: usize::try_from(len).unwrap_or(0) })
    }

    pub(crate) fn all(&self) -> &[*mut sys::ibv_device] {
        // SAFETY: the library returned `len` entries, which stay as they are until the list is freed with `self`.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }

    /// The devices as the kernel describes them.
    pub(crate) fn rails(&self) -> Vec<Rail> {
        // SAFETY: an entry of a list that is not yet freed.
        self.all().iter().map(|&device| described(&unsafe { name(device) })).collect()
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // SAFETY: the list of ibv_get_device_list, freed once. Devices that were opened stay valid.
        unsafe { sys::ibv_free_device_list(self.first.as_ptr()) };
    }
}

/// A device as the kernel describes it.
pub(crate) fn described(device: &str) -> Rail {
    sysfs::rail(Path::new("/sys"), device)
}

/// The kernel's driver of a device.
pub(crate) fn driver(device: &str) -> String {
    sysfs::driver(Path::new("/sys"), device)
}

/// A device's name.
///
/// # Safety
/// The device is one of a list that is not yet freed, or an open context's.
pub(crate) unsafe fn name(device: *mut sys::ibv_device) -> String {
    // SAFETY: a device by the caller's promise.
    let name = unsafe { sys::ibv_get_device_name(device) };
    // SAFETY: a NUL-terminated string within the device.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// The device of each rail, as a position in `found`.
pub(crate) fn assign(rails: &[Rail], found: &[Rail]) -> Result<Vec<usize>, OpenError> {
    let mut chosen: Vec<usize> = Vec::with_capacity(rails.len());
    for rail in rails {
        let at = choose(rail, found)?;
        if let Some(before) = chosen.iter().position(|&taken| taken == at) {
            let (first, second) = (rails[before].name.clone(), rail.name.clone());
            return Err(OpenError::OneDevice { first, second, device: found[at].name.clone() });
        }
        chosen.push(at);
    }
    Ok(chosen)
}

/// By its PCI address where it has one, which is an identity, else by its name.
fn choose(rail: &Rail, found: &[Rail]) -> Result<usize, OpenError> {
    let fits = |device: &Rail| match rail.pci {
        Some(pci) => device.pci == Some(pci),
        None => device.name == rail.name,
    };
    let fitting: Vec<usize> = (0..found.len()).filter(|&at| fits(&found[at])).collect();
    match (fitting.as_slice(), rail.pci) {
        ([only], _) => Ok(*only),
        ([], _) | (_, None) => {
            let have = found.iter().map(|device| device.name.clone()).collect();
            Err(OpenError::NoDevice { rail: rail.name.clone(), pci: rail.pci, have })
        }
        // A software device beside the hardware's own, say.
        (several, Some(pci)) => several.iter().copied().find(|&at| found[at].name == rail.name).ok_or_else(|| {
            let devices = several.iter().map(|&at| found[at].name.clone()).collect();
            OpenError::SeveralDevices { rail: rail.name.clone(), pci, devices }
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str, pci: Option<&str>) -> Rail {
        Rail { pci: pci.map(|pci| pci.parse().unwrap()), ..Rail::named(name) }
    }

    #[test]
    fn an_address_is_an_identity_and_a_name_is_not() {
        let found = [at("mlx5_0", Some("4f:00.0")), at("mlx5_1", Some("50:00.0")), at("rxe0", Some("50:00.0")), at("rxe1", None)];
        let assign = |rails: &[Rail]| assign(rails, &found);
        assert_eq!(assign(&[at("rxe1", None), at("mlx5_1", Some("4f:00.0"))]), Ok(vec![3, 0]), "the address decides");
        assert_eq!(assign(&[at("rxe0", Some("50:00.0"))]), Ok(vec![2]), "of two at one address the name decides");
        let Err(OpenError::SeveralDevices { devices, .. }) = assign(&[at("rail1", Some("50:00.0"))]) else {
            panic!("one of two devices was guessed");
        };
        assert_eq!(devices, ["mlx5_1", "rxe0"]);
        for absent in [at("mlx5_9", None), at("mlx5_0", Some("51:00.0"))] {
            assert!(matches!(assign(&[absent]), Err(OpenError::NoDevice { have, .. }) if have.len() == 4));
        }
        let Err(OpenError::OneDevice { first, second, device }) = assign(&[at("mlx5_0", None), at("a", Some("4f:00.0"))]) else {
            panic!("two rails got one device");
        };
        assert_eq!([first, second, device], ["mlx5_0", "a", "mlx5_0"]);
        assert_eq!(assign(&[]), Ok(vec![]));
    }
}
