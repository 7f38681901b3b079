// Going to another database: what the pages show and the editor's session move there together.

import { setDatabase } from "./api.js";
import { catalog } from "./catalog.js";
import { runs } from "./runs.js";

export function chooseDatabase(name) {
  setDatabase(name);
  runs.renew();
  catalog.refresh();
}
