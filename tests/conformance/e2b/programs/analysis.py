# SPDX-License-Identifier: Apache-2.0
"""Sales of a year: a table is uploaded, summed up with pandas, drawn with matplotlib, and the chart's numbers and picture come back."""
import base64
import os

from e2b_code_interpreter import Sandbox

sandbox = Sandbox.connect(os.environ["ANALYSIS_SANDBOX"]) if "ANALYSIS_SANDBOX" in os.environ else Sandbox.create()
table = "month,region,amount\n" + "".join(f"{m},{r},{m * 10 + len(r)}\n" for m in range(1, 13) for r in ("north", "south-west"))
sandbox.files.write("sales.csv", table)
print(sandbox.run_code("import pandas as pd\nsales = pd.read_csv('/home/user/sales.csv')\nsales.groupby('region')['amount'].sum()").text)
drawn = sandbox.run_code("""
import matplotlib.pyplot as plt
by_region = sales.groupby('region')['amount'].sum()
plt.bar(by_region.index, by_region.values)
plt.title('Sales')
plt.ylabel('Amount (EUR)')
plt.show()
""")
assert drawn.error is None, drawn.error
chart = drawn.results[0].chart
assert (chart.title, chart.y_label) == ("Sales", "Amount (EUR)"), chart
assert [(e.label, e.value) for e in chart.elements] == [("north", 840), ("south-west", 900)], chart.elements
assert base64.b64decode(drawn.results[0].png).startswith(b"\x89PNG")
wrong = sandbox.run_code("sales['regoin']")
assert wrong.error.name == "KeyError" and "regoin" in wrong.error.traceback
print("done")
