#include "engine/quantize/calibration_text.h"

namespace kvant::quantize {

const std::string_view kCalibrationText =
    R"(The ferry left the harbour at seven in the morning, and by noon the coast had become a thin
grey line behind us. My grandfather stood at the rail with his hat in his hand. He had not seen the
island since he was a boy of nine, and he wanted to be the first on board to notice its mountain.

"Do you still remember the way to the house?" I asked.
"Of course," he said. "Up from the pier, left at the baker's, and then follow the smell of the
lemon trees."
"And if the trees are gone?"
"Then we will ask somebody. People there like to be asked."

def read_table(path, separator=","):
    """Returns the rows of a text file as lists of numbers."""
    rows = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.strip()
            if line and not line.startswith("#"):
                rows.append([float(cell) for cell in line.split(separator)])
    return rows

The water of a lake freezes from the top, because water is densest at about 4 degrees Celsius. As
the surface cools below that temperature, the colder water stays on top until it turns to ice. The
ice then protects the water below from the cold air, so that fish can live through the winter.

User: How many minutes are there in three and a half hours?
Assistant: One hour has 60 minutes, so three hours have 180 minutes. Half an hour adds 30 more.
Together that makes 210 minutes.
User: And in seconds?
Assistant: 210 minutes times 60 seconds is 12,600 seconds.

Im Herbst sammelten die Kinder Kastanien unter den alten Bäumen am Fluss. Am Abend trugen sie ihre
vollen Taschen nach Hause, und die Großmutter zeigte ihnen, wie man daraus kleine Tiere baut: ein
Pferd, einen Hund und einen Igel mit vielen Stacheln.

| Year | Visitors | Income (EUR) | Change |
| ---- | -------: | -----------: | -----: |
| 2019 |   14,208 |    92,352.00 |  +3.1% |
| 2020 |    3,977 |    25,850.50 | -72.0% |
| 2021 |    8,645 |    56,192.50 | +117.4% |
| 2022 |   15,031 |   105,217.00 | +73.9% |

#include <stdio.h>

static int count_bits(unsigned value) {
  int bits = 0;
  for (; value != 0; value &= value - 1) ++bits;
  return bits;
}

int main(void) {
  for (unsigned i = 0; i < 16; i++) printf("%2u: %d\n", i, count_bits(i));
  return 0;
}

Le marché du samedi commence tôt. Dès six heures, les paysans installent leurs tables sur la
place et disposent les fromages, les pommes et le miel. Vers onze heures, il ne reste presque
plus rien, et les derniers clients discutent encore du prix des tomates.

The committee met on Tuesday to discuss the budget for the coming year. After a long debate the
members agreed to repair the bridge before winter, to postpone the new library, and to raise the
fee for parking by ten cents. Two members voted against the proposal, and one did not vote.

{"id": 4071, "name": "Garden lamp", "price": 24.95, "tags": ["outdoor", "solar"],
 "stock": {"warehouse": 132, "shop": 7}, "available": true, "successor": null}

SELECT customers.name, SUM(orders.total) AS spent
FROM customers JOIN orders ON orders.customer_id = customers.id
WHERE orders.placed_on >= '2024-01-01'
GROUP BY customers.name HAVING SUM(orders.total) > 500 ORDER BY spent DESC;

El tren llegó con veinte minutos de retraso. En el andén, una mujer vendía flores y un músico
tocaba la guitarra sin mirar a nadie. Cuando por fin se abrieron las puertas, todos quisieron subir
al mismo tiempo, y nadie pudo bajar.

Proof. Suppose that the square root of 2 were a fraction a/b in lowest terms. Then a^2 = 2 b^2, so
a^2 is even, and therefore a is even: a = 2c. It follows that 4 c^2 = 2 b^2, that is, b^2 = 2 c^2,
so b is even as well. But then a/b was not in lowest terms, which is a contradiction.

Поезд остановился у маленькой станции среди леса.
Вышел только один человек, высокий старик с чемоданом.
Он посмотрел на часы, улыбнулся и пошёл к деревне,
где его давно ждали.

1. Heat the oven to 200 degrees and butter a round tin.
2. Beat four eggs with 150 g of sugar until the mixture is pale and thick.
3. Fold in 120 g of flour and a pinch of salt, then the melted butter.
4. Bake for 25 minutes. The cake is done when a needle comes out clean.

春天来了，河边的柳树长出了新叶。
孩子们放学以后在草地上放风筝，老人坐在长椅上下棋。
远处的山还是白色的，但是风已经不冷了。

雨がやんで、空に大きな虹が出た。
駅の前で人々は足を止め、しばらく空を見上げていた。
やがて電車の音が聞こえ、みんなまた歩き始めた。

Dear Ms. Alvarez,
Thank you for your letter of 12 March. I am sorry that the second parcel reached you damaged. We
have sent a new one today, free of charge, and it should arrive by Friday. Please keep the old one
until our driver collects it.
Kind regards, Tom Becker

في الصباح الباكر خرج الصياد إلى البحر مع ابنه.
كان الماء هادئا والسماء صافية،
وبعد ساعات قليلة عادا إلى الميناء ومعهما سمك كثير.

<ul class="menu">
  <li><a href="/index.html">Home</a></li>
  <li><a href="/news?page=2">News</a></li>
  <li class="active">Contact</li>
</ul>

$ git status --short
 M src/parser.c
?? notes.txt
$ make test 2>&1 | tail -n 2
Ran 148 tests in 3.072s
OK

Light from the Sun takes a little more than eight minutes to reach the Earth. Sunlight that falls on
a leaf drives a chain of reactions in which water is split, oxygen is released, and carbon dioxide
is built into sugar. Nearly all food on land begins with this step.

O wind that walks the empty street,
what do you carry, leaf or rain?
I hear the sound of passing feet
and then the silence once again.

import { useState } from "react";

export function Counter({ start = 0 }) {
  const [count, setCount] = useState(start);
  return <button onClick={() => setCount(count + 1)}>Clicked {count} times</button>;
}

Question: A box holds 24 apples. Five children take three apples each. How many are left?
Reasoning: Five times three is fifteen. Twenty-four minus fifteen is nine.
Answer: 9

Nel pomeriggio il maestro aprì la finestra e lasciò entrare il rumore della piazza. "Oggi non
leggiamo," disse, "oggi ascoltiamo." I ragazzi si guardarono sorpresi, poi chiusero i libri.

In 1804 the engine of Richard Trevithick drew ten tons of iron and seventy men over a distance of
nine miles. It was too heavy for the rails of its time, and broke many of them, but it showed that
a smooth wheel on a smooth rail could pull a load.
)";

}  // namespace kvant::quantize
