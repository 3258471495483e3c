// What the browser keeps, "local" for good and "session" until the tab is closed. A browser that keeps
// nothing gives null and false, and the page works all the same.
const stores = { local: () => localStorage, session: () => sessionStorage };

export function read(store, name) {
  try {
    return stores[store]().getItem(name);
  } catch {
    return null;
  }
}

// Whether it is kept. A value of null is taken away.
export function write(store, name, value) {
  try {
    if (value === null) stores[store]().removeItem(name);
    else stores[store]().setItem(name, value);
    return true;
  } catch {
    return false;
  }
}

export function names(store) {
  try {
    return Object.keys(stores[store]());
  } catch {
    return [];
  }
}
